"""Transport of the blocking client: a thread-safe pool of connections of one association."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic
from weakref import WeakSet

from msrpc.ndr import Interface, Operation
from msrpc.rpc import client as rpc
from msrpc.rpc.client_connection import FaultReceived, ResponseReceived
from msrpc.rpc.faults import RpcFault
from msrpc.rpc.responses import decoded
from openmsmq.client.calls import (
    ClientAssociation,
    ClientCall,
    ClientClosed,
    Steps,
    T,
    fault_error,
    resumed,
    spoken,
    transfer_syntaxes,
)
from openmsmq.client.pipelining import Pipeline
from openmsmq.client.reopening import Locked
from openmsmq.client.retrying import Attempts
from openmsmq.model.errors import AuthenticationError, BindError, LoginRefused, MsmqError, RpcConnectionError
from openmsmq.model.message import Message

_ABANDON_SECONDS = 2.0  # maximum wait for the server to process an interrupted call before its connection is closed
RESTARTED = "the server has restarted"
UNKNOWN_GROUP = 0  # reason of a bind_nak for an unknown association group: "not specified"


@dataclass(slots=True, eq=False)
class _Member:
    """A connection of an association."""

    connection: rpc.Connection
    association: ClientAssociation


class Pool:
    """Idle connections of one association; a call takes one, or opens another when all are busy.

    A pool can outlive the server process: after the last connection of an association has ended, the next call starts a
    new association. Server resources of the old one are lost.
    """

    def __init__(self, host: str, port: int, security: dict[str, Any], reconnect_seconds: float = 0.0) -> None:
        """A call tries to reconnect for up to `reconnect_seconds`."""
        self._host, self._port, self._security = host, port, security
        self.reconnect_seconds = reconnect_seconds
        self._idle: list[_Member] = []
        self._all: set[_Member] = set()
        self._association = ClientAssociation()
        self._closed = False
        self._make_locks()
        _pools.add(self)

    def _make_locks(self) -> None:
        self._lock = threading.Lock()
        self._founding = threading.Lock()  # held while the first connection of an association is opened

    # -- calls ---------------------------------------------------------------------------------------------------

    @staticmethod
    def outcome(result: T) -> T:
        """Return a method's result; see `Runner.outcome`."""
        return result

    def run(self, steps: Steps[T]) -> T:
        """Run `steps` and return their result."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = self.call(call)
                except BaseException as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def run_all(self, work: Pipeline[T]) -> None:
        """Run operations concurrently on one connection; their calls are sent in order."""
        PooledPipeline(self, work).run()

    def receive(self, steps: Steps[Locked]) -> Message:
        """Receive a message and remove it."""
        taken = self.run(steps)
        if taken.locked:
            self.run(taken.end(True))
        return taken.message

    # The asyncio client protects these from cancellation; a thread cannot be canceled.
    open = end = run

    def call(self, call: ClientCall) -> Any:
        """Make a call and return its response. Raises MsmqError."""
        attempts = self.attempts(call)
        stub = call.operation.encode_request(call.request)
        while True:
            if self._closed:
                raise ClientClosed
            attempts.check()
            sent = False
            try:
                member = self.take(call)
                attempts.check()
                sent = True
                return self._exchange(member, call, stub)
            except RpcConnectionError as error:
                if self._closed:
                    raise ClientClosed(call if sent else None) from error
                pause = attempts.pause_after(error, sent)
            time.sleep(pause)

    def attempts(self, call: ClientCall) -> Attempts:
        return Attempts(call, self.reconnect_seconds, time.monotonic, random.random)

    def error_of(self, fault: RpcFault, call: ClientCall) -> MsmqError:
        return fault_error(fault, call.operation.name, self._security.get("credentials") is None)

    def _exchange(self, member: _Member, call: ClientCall, stub: bytes) -> Any:
        connection = member.connection
        operation = spoken(call.operation, connection.transfer_syntax)
        if operation is not call.operation:
            stub = operation.encode_request(call.request)
        try:
            answer = connection.exchange(operation.opnum, stub, timeout=call.timeout)
        except RpcFault as fault:
            self.give(member)
            raise self.error_of(fault, call) from fault
        except LoginRefused as error:
            self.drop(member, str(error))
            raise
        except RpcConnectionError as error:
            self.drop(member, str(error))
            raise
        except BaseException:  # also KeyboardInterrupt: a late response would break the next call
            self.give_up(member)
            raise
        if call.opens is not None:
            call.opens.association = member.association
        self.give(member)
        return decoded(operation, answer.stub, answer.byte_order)

    # -- connections ---------------------------------------------------------------------------------------------

    def take(self, call: ClientCall) -> _Member:
        """Take an idle connection or open one, and bind the interface of a call. Raises RpcConnectionError."""
        member = self._take_idle() or self._open(call)
        try:
            _bind(member.connection, call)
        except BindError:
            self.give(member)  # other interfaces still work, and this may be the last connection of the association
            raise
        except BaseException as error:
            self.drop(member, str(error))
            raise
        return member

    def _take_idle(self) -> _Member | None:
        while True:
            with self._lock:
                if self._closed:
                    raise ClientClosed
                if not self._idle:
                    return None
                member = self._idle.pop()
            if member.association.alive and member.connection.is_open:
                return member
            self.drop(member, "the server closed the connection")

    def _open(self, call: ClientCall) -> _Member:
        """Open a connection. The first one of an association is opened alone, because the others need its group."""
        with self._founding:
            association = self._association
            if not association.group:
                return self._connect(association, call)
        return self._connect(association, call)

    def _connect(self, association: ClientAssociation, call: ClientCall) -> _Member:
        group = association.group
        connection = rpc.connect(self._host, self._port, assoc_group_id=group, **self._security)
        try:
            _bind(connection, call)
        except BindError as error:
            if error.reason is None:  # the server refused only this interface
                self.give(self._join(connection, association))
                raise
            connection.close()
            if group and error.reason == UNKNOWN_GROUP:
                self._end(association, RESTARTED)
                raise RpcConnectionError(str(error)) from error
            raise
        except BaseException:
            connection.close()
            raise
        return self._join(connection, association)

    def _join(self, connection: rpc.Connection, association: ClientAssociation) -> _Member:
        """Add a bound connection to an association, or to a new one if the association has ended."""
        group = connection.core.assoc_group_id
        if association.group not in (0, group):
            self._end(association, RESTARTED)
        with self._lock:
            if not association.alive:
                association = self._association
            if association.group in (0, group) and not self._closed:
                association.group = group
                member = _Member(connection, association)
                self._all.add(member)
                return member
        connection.close()  # another thread has started a new association meanwhile
        raise RpcConnectionError("the association has ended")

    def give_up(self, member: _Member) -> None:
        """Close a connection after an interrupted call, whose response may still arrive."""
        self._replace(member)
        member.connection.abandon(_ABANDON_SECONDS)
        self.drop(member, "a call was interrupted")

    def _replace(self, member: _Member) -> None:
        """Open another connection if this is the last one of its association, so that the association survives its
        end."""
        with self._lock:
            alone = not any(other is not member and other.association is member.association for other in self._all)
        if alone and member.association.alive and not self._closed:
            with suppress(MsmqError):
                interface, syntax = next(iter(member.connection.core.transfer_syntaxes.items()))
                connection = rpc.connect(
                    self._host, self._port, assoc_group_id=member.association.group, **self._security
                )
                try:
                    connection.bind(interface.uuid, interface.version, [syntax])
                except BaseException:
                    connection.close()
                    raise
                self._keep(_Member(connection, member.association))

    def _keep(self, member: _Member) -> None:
        with self._lock:
            self._all.add(member)
            self._idle.append(member)

    def give(self, member: _Member) -> None:
        with self._lock:
            if not self._closed and member.association.alive:
                self._idle.append(member)
                return
        member.connection.close()

    def drop(self, member: _Member, reason: str) -> None:
        """Close a connection that cannot be used any longer. If it was the last one, the association ends."""
        member.connection.close()
        with self._lock:
            self._all.discard(member)
            closed = [other for other in self._idle if not other.connection.is_open]
            for other in closed:
                self._idle.remove(other)
                self._all.discard(other)
            last = not any(other.association is member.association for other in self._all)
        for other in closed:
            other.connection.close()
        if last:
            self._end(member.association, reason)

    def _end(self, association: ClientAssociation, reason: str) -> None:
        association.end(reason)
        with self._lock:
            if self._association is association:
                self._association = ClientAssociation()
            ended = [member for member in self._idle if member.association is association]
            self._idle = [member for member in self._idle if member.association is not association]
            self._all = {member for member in self._all if member.association is not association}
        for member in ended:
            member.connection.close()

    def close(self) -> None:
        """Close all connections. The server then releases open queues and aborts transactions."""
        with self._lock:
            self._closed = True
            members, self._all = self._all, set()
        for member in members:
            member.connection.close()

    def after_fork(self) -> None:
        """Reset the pool in a forked child. The parent keeps the connections and the server resources."""
        self._make_locks()
        for member in self._all:
            member.association.end("the connection belongs to the parent process, which forked this one")
            member.connection.release()
        self._association.end("the connection belongs to the parent process, which forked this one")
        self._association = ClientAssociation()
        self._idle, self._all = [], set()


@dataclass(slots=True)
class _Flight(Generic[T]):
    """An operation of a pipeline whose call has been sent."""

    index: int
    steps: Steps[T]
    call: ClientCall
    operation: Operation


class PooledPipeline(Generic[T]):
    """Runs a pipeline. Operations with a second call, or whose connection was lost, are completed one by one."""

    def __init__(self, pool: Pool, work: Pipeline[T]) -> None:
        self._pool, self._work = pool, work
        self._member: _Member | None = None
        self._interface: Interface | None = None
        self._flights: dict[int, _Flight[T]] = {}  # by call id

    def run(self) -> None:
        try:
            while True:
                while (begun := self._work.begin()) is not None:
                    self._begin(*begun)
                if not self._flights:
                    break
                self._collect()
        except BaseException:  # also KeyboardInterrupt: late responses would break later calls
            if (member := self._member) is not None:
                self._pool.give_up(member)
            raise
        self._release()

    def _begin(self, index: int, steps: Steps[T]) -> None:
        try:
            call = next(steps)
        except StopIteration as stop:
            self._work.done(index, stop.value)
            return
        except MsmqError as error:  # the value cannot be sent
            self._work.failed(index, error)
            return
        if call.lost is not None or call.interface is not self._interface:
            while self._flights:
                self._collect()
            self._release()
            if call.lost is not None or not self._take(call):
                self._alone(index, steps, call)
                return
        assert self._member is not None
        connection = self._member.connection
        operation = spoken(call.operation, connection.transfer_syntax)
        try:
            stub = operation.encode_request(call.request)
        except MsmqError:  # a value does not fit its type; the steps get the same error
            self._alone(index, steps, call)
            return
        number = connection.submit(operation.opnum, stub)
        self._flights[number] = _Flight(index, steps, call, operation)

    def _take(self, call: ClientCall) -> bool:
        """Take a connection; return whether there is one."""
        try:
            self._member = self._pool.take(call)
        except MsmqError:
            return False
        self._interface = call.interface
        return True

    def _release(self) -> None:
        if self._member is not None:
            self._pool.give(self._member)
        self._member = self._interface = None

    def _collect(self) -> None:
        """Wait for responses and process them."""
        member = self._member
        assert member is not None
        timeout = next(iter(self._flights.values())).call.timeout
        try:
            events = member.connection.answers(timeout)
        except (RpcConnectionError, AuthenticationError) as error:
            self._member = self._interface = None
            self._pool.drop(member, str(error))
            flights, self._flights = self._flights, {}
            for flight in flights.values():
                self._lost(flight, error)
            return
        for event in events:
            flight = self._flights.pop(event.call_id)
            if isinstance(event, FaultReceived):
                fault = member.connection.error_of(event)
                raised = self._pool.error_of(fault, flight.call) if isinstance(fault, RpcFault) else fault
                self._go_on(flight, partial(flight.steps.throw, raised))
            else:
                self._answer(flight, event)

    def _answer(self, flight: _Flight[T], event: ResponseReceived) -> None:
        if flight.call.opens is not None and self._member is not None:
            flight.call.opens.association = self._member.association
        try:
            answer = decoded(flight.operation, event.stub, event.byte_order)
        except MsmqError as error:
            self._go_on(flight, partial(flight.steps.throw, error))
        else:
            self._go_on(flight, partial(flight.steps.send, answer))

    def _lost(self, flight: _Flight[T], error: MsmqError) -> None:
        """Retry or fail an operation whose connection ended before the response."""
        if isinstance(error, RpcConnectionError):
            try:
                self._pool.attempts(flight.call).pause_after(error, True)
            except MsmqError as final:
                error = final
            else:  # the call may be repeated
                self._alone(flight.index, flight.steps, flight.call)
                return
        self._go_on(flight, partial(flight.steps.throw, error))

    def _go_on(self, flight: _Flight[T], step: Callable[[], ClientCall]) -> None:
        try:
            call = step()
        except StopIteration as stop:
            self._work.done(flight.index, stop.value)
        except MsmqError as error:
            self._work.failed(flight.index, error)
        else:
            self._alone(flight.index, flight.steps, call)

    def _alone(self, index: int, steps: Steps[T], call: ClientCall) -> None:
        try:
            self._work.done(index, self._pool.run(resumed(steps, call)))
        except MsmqError as error:
            self._work.failed(index, error)


def _bind(connection: rpc.Connection, call: ClientCall) -> None:
    interface = call.interface
    connection.bind(interface.uuid, interface.version, transfer_syntaxes(interface))


_pools: WeakSet[Pool] = WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
