"""A queue manager's access to its directory: queries have a time limit, and failures mark the directory as unavailable.

After a directory has not answered, QueueManager.DirectoryOffline ([MS-MQDMPR] 3.1.1.1) is set: calls fail immediately,
so that they do not all wait for the time limit, until `check` finds it available again. Failures are the HRESULTs that
protocol callers get.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from openmsmq.directory.provider import (
    DirectoryDenied,
    DirectoryError,
    DirectoryNotConnected,
    DirectoryProvider,
    MachineRecord,
    ObjectExists,
    ObjectNotFound,
)
from openmsmq.model.errors import AccessDenied, HResult, IllegalPropertyValue, MsmqError, QueueExists, error_for

logger = logging.getLogger(__name__)

T = TypeVar("T")

TIME_LIMIT: Final = 10.0  # seconds for one operation
ONLINE_PERIOD: Final = 60.0  # seconds, Directory Online Timer ([MS-MQDMPR] 3.1.2.5)


class DirectoryConnection:
    """Queries a provider. Without a provider there is no directory, as in workgroup mode.

    Attributes:
        offline: QueueManager.DirectoryOffline.
    """

    def __init__(self, provider: DirectoryProvider | None, time_limit: float = TIME_LIMIT) -> None:
        """`time_limit` is in seconds."""
        self.provider: Final = provider
        #: Called with each queue manager that is read from the directory; must not raise.
        self.on_machine: Callable[[MachineRecord], object] = lambda record: None
        self._time_limit: Final = time_limit
        self.offline = False

    @property
    def exists(self) -> bool:
        """QueueManager.DirectoryIntegrated: whether there is a directory, even if it is unavailable."""
        return self.provider is not None

    async def ask(
        self,
        question: Callable[[DirectoryProvider], Awaitable[T]],
        not_found: HResult = HResult.MQ_ERROR_QUEUE_NOT_FOUND,
        *,
        force: bool = False,
    ) -> T:
        """Run a query or change and return its result.

        Args:
            not_found: the error for a missing object.
            force: also try while the directory is offline.

        Raises MsmqError: MQ_ERROR_NO_DS if there is no directory or it cannot be reached;
        MQ_ERROR_NO_RESPONSE_FROM_OBJECT_SERVER if it did not answer in time (a change may still have been made);
        `not_found`, MQ_ERROR_QUEUE_EXISTS, AccessDenied; IllegalPropertyValue for a value that it cannot store.
        """
        if self.provider is None:
            raise MsmqError(HResult.MQ_ERROR_NO_DS, "this queue manager has no directory (setting directory_provider)")
        if self.offline and not force:
            raise MsmqError(HResult.MQ_ERROR_NO_DS, "the directory is unavailable; the next attempt is within a minute")
        try:
            async with asyncio.timeout(self._time_limit):  # wait_for may lose a cancellation of its caller
                answer = await question(self.provider)
        except TimeoutError:
            self._set_offline(f"no answer in {self._time_limit:g} s")
            raise MsmqError(
                HResult.MQ_ERROR_NO_RESPONSE_FROM_OBJECT_SERVER,
                f"the directory has not answered in {self._time_limit:g} s",
            ) from None
        except DirectoryNotConnected as error:
            self._set_offline(str(error))
            raise MsmqError(HResult.MQ_ERROR_NO_DS, f"the directory is unavailable: {error}") from None
        except DirectoryError as error:
            self._set_online()  # a refusal is an answer
            if isinstance(error, DirectoryDenied):  # the caller does not get the reason
                logger.warning("directory refused a request: %s", error)
            raise _failure(error, not_found) from None
        except (UnicodeEncodeError, OverflowError) as error:
            raise IllegalPropertyValue(detail=f"the directory cannot store or compare a value: {error}") from None
        except MsmqError:  # some are ValueErrors, too
            raise
        except ValueError as error:  # data of the directory that is malformed, or a name that the library refuses
            raise MsmqError(HResult.MQ_ERROR_DS_ERROR, f"the directory returned invalid data: {error}") from None
        if isinstance(answer, MachineRecord):
            self.on_machine(answer)
        self._set_online()
        return answer

    def _set_online(self) -> None:
        if self.offline:
            self.offline = False
            logger.warning("directory available again")

    def _set_offline(self, reason: str) -> None:
        if not self.offline:
            logger.error("directory unavailable: public queues cannot be looked up or changed: %s", reason)
        self.offline = True

    async def close(self) -> None:
        if self.provider is not None:
            await self.provider.close()


def _failure(error: DirectoryError, not_found: HResult) -> MsmqError:
    match error:
        case ObjectNotFound():
            return error_for(not_found, f"{error} is not in the directory")
        case ObjectExists():
            return QueueExists(detail=f"already in the directory: {error}")
        case DirectoryDenied():
            return AccessDenied(detail=f"the directory denied the request: {error}")
    return MsmqError(HResult.MQ_ERROR_DS_ERROR, str(error))
