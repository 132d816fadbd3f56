"""A recursive descent parser for the subset of MIDL in which the Open Specifications publish their interfaces.

It parses more than the code generator emits: object interfaces, dispatch interfaces, coclasses and libraries are parsed
too, because MS-DCOM, MS-OAUT and MC-MQAC use them.
"""

from __future__ import annotations

import contextlib

from msrpc.idl import syntax as s
from msrpc.idl.lexer import IdlError, Lexeme, tokenize

_TYPE_WORDS = frozenset(
    [
        "unsigned",
        "signed",
        "char",
        "short",
        "int",
        "long",
        "hyper",
        "small",
        "byte",
        "float",
        "double",
        "void",
        "boolean",
        "__int64",
        "__int3264",
        "__int32",
        "__int16",
        "__int8",
        "handle_t",
    ]
)
_QUALIFIERS = frozenset(["const", "volatile", "__cdecl", "__stdcall", "STDMETHODCALLTYPE"])
_PRECEDENCE = [
    ["||"],
    ["&&"],
    ["|"],
    ["^"],
    ["&"],
    ["==", "!="],
    ["<", ">", "<=", ">="],
    ["<<", ">>"],
    ["+", "-"],
    ["*", "/", "%"],
]
# Attributes whose arguments are opaque text and do not affect the wire format.
_UUID_ATTRIBUTES = frozenset(["uuid"])


def parse(text: str, filename: str) -> s.File:
    """Parse IDL `text` into a `syntax.File`. Raises IdlError naming file and line."""
    return _Parser(text, filename).file()


class _Parser:
    def __init__(self, text: str, filename: str) -> None:
        self._filename = filename
        self._tokens = list(tokenize(text, filename))
        self._at = 0
        self._file = s.File()
        self._interface = ""
        self._macros: dict[str, list[Lexeme]] = {}

    # -- tokens ----------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Lexeme:
        return self._tokens[self._at]

    def _peek(self, distance: int = 1) -> Lexeme:
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    def _error(self, wanted: str) -> IdlError:
        return IdlError(f"{self._filename}:{self._token.line}: expected {wanted}, found {self._token.text or 'end'!r}")

    def _take(self) -> Lexeme:
        token = self._token
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._token.text == text and self._token.kind in ("op", "name"):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._error(repr(text))

    def _name(self) -> str:
        if self._token.kind != "name":
            raise self._error("a name")
        return self._take().text

    # -- file level ------------------------------------------------------------------------------------------

    def file(self) -> s.File:
        while self._token.kind != "end":
            self._item()
        return self._file

    def _item(self) -> None:
        token = self._token
        if token.kind == "define":
            self._define()
        elif self._accept("import"):
            self._file.imports.append(self._take().text.strip('"'))
            while self._accept(","):
                self._file.imports.append(self._take().text.strip('"'))
            self._accept(";")
        elif self._accept("cpp_quote") or self._accept("importlib"):  # not IDL: text for C, or a type library
            self._expect("(")
            self._take()
            self._expect(")")
            self._accept(";")
        elif self._accept(";"):
            pass
        else:
            attributes = self._attributes()
            if self._token.text in ("interface", "dispinterface", "coclass", "library"):
                self._block(self._take().text, attributes)
            else:
                self._definition(attributes)

    def _define(self) -> None:
        _, name, value = self._take().text.split(None, 2)
        try:
            expression = _Parser(value, self._filename).sole_expression()
        except IdlError:  # not a constant: text that may be used as a type
            with contextlib.suppress(IdlError):
                self._macros[name] = list(tokenize(value, self._filename))[:-1]
            return
        self._file.definitions.append((self._interface, s.Constant(name, expression)))

    def sole_expression(self) -> s.Expression:
        """Parse the whole text as an expression."""
        expression = self._expression()
        if self._token.kind != "end":
            raise self._error("the end of the expression")
        return expression

    def _block(self, kind: str, attributes: s.Attributes) -> None:
        name = self._name()
        if self._accept(";"):  # forward declaration
            self._file.forward.append(name)
            return
        if kind == "library":
            self._expect("{")
            while not self._accept("}"):
                self._item()
            self._accept(";")
        elif kind == "coclass":
            coclass = s.CoClassDecl(name, attributes, [])
            self._expect("{")
            while not self._accept("}"):
                member_attributes = self._attributes()
                if not (self._accept("interface") or self._accept("dispinterface")):
                    raise self._error("'interface' or 'dispinterface'")
                coclass.interfaces.append((member_attributes, self._name()))
                self._accept(";")
            self._accept(";")
            self._file.coclasses.append(coclass)
        else:
            self._interface_block(name, attributes, kind == "dispinterface")

    def _interface_block(self, name: str, attributes: s.Attributes, is_dispatch: bool) -> None:
        base = self._name() if self._accept(":") else None
        interface = s.InterfaceDecl(name, attributes, base, is_dispatch=is_dispatch)
        self._file.interfaces.append(interface)
        self._expect("{")
        outer, self._interface = self._interface, name
        while not self._accept("}"):
            if self._token.text in ("properties", "methods") and self._peek().text == ":":
                self._at += 2
            elif self._token.kind == "define" or self._token.text in ("import", "cpp_quote", ";"):
                self._item()
            elif is_dispatch and self._token.text == "interface":
                self._take()
                interface.base = self._name()
                self._accept(";")
            else:
                self._interface_member(interface)
        self._interface = outer
        self._accept(";")

    def _interface_member(self, interface: s.InterfaceDecl) -> None:
        attributes = self._attributes()
        start = self._at
        if self._token.text not in ("typedef", "const", "enum", "struct", "union"):
            line = self._token.line
            result = self._type()
            pointers = 0
            while self._accept("*"):
                pointers += 1
            while self._token.text in _QUALIFIERS:
                self._take()
            name = self._name()
            if self._token.text == "(":
                parameters = self._parameters()
                self._expect(";")
                interface.operations.append(s.OperationDecl(name, attributes, result, pointers, parameters, line))
                return
            if interface.is_dispatch:  # a property is accessed only through Invoke
                self._expect(";")
                return
            self._at = start
        self._definition(attributes)

    def _parameters(self) -> list[s.MemberDecl]:
        self._expect("(")
        parameters: list[s.MemberDecl] = []
        if self._token.text == "void" and self._peek().text == ")":
            self._take()
        while not self._accept(")"):
            line = self._token.line
            attributes = self._attributes()
            parameter_type = self._type()
            parameters.append(s.MemberDecl(attributes, parameter_type, self._declarator(optional_name=True), line))
            if self._token.text != ")":
                self._expect(",")
        return parameters

    # -- definitions -----------------------------------------------------------------------------------------

    def _definition(self, attributes: s.Attributes) -> None:
        line = self._token.line
        if self._accept("typedef"):
            attributes = {**attributes, **self._attributes()}
            base = self._type(attributes)
            declarators = [self._declarator()]
            while self._accept(","):
                declarators.append(self._declarator())
            self._expect(";")
            self._file.definitions.append((self._interface, s.Typedef(attributes, base, declarators, line)))
        elif self._token.text == "const":
            self._take()
            self._type()
            while self._accept("*"):
                pass
            name = self._name()
            self._expect("=")
            self._file.definitions.append((self._interface, s.Constant(name, self._expression())))
            self._expect(";")
        else:
            defined = self._type(attributes)
            self._expect(";")
            self._file.definitions.append((self._interface, defined))

    def _type(self, attributes: s.Attributes | None = None) -> s.TypeExpression:
        while self._token.text in _QUALIFIERS:
            self._take()
        if (macro := self._macros.get(self._token.text)) is not None:
            self._tokens[self._at : self._at + 1] = macro
            while self._token.text in _QUALIFIERS:
                self._take()
        token = self._token
        if token.kind != "name":
            raise self._error("a type")
        if token.text == "enum":
            result: s.TypeExpression = self._enum(attributes or {})
        elif token.text == "struct":
            result = self._struct()
        elif token.text == "union":
            result = self._union(attributes or {})
        elif token.text == "interface" and self._peek().kind == "name":
            self._take()
            result = s.TypeName(self._name())
        elif token.text == "SAFEARRAY" and self._peek().text == "(":
            self._at += 2
            result = s.SafeArrayType(self._type())
            self._expect(")")
        elif token.text in _TYPE_WORDS:
            words = []
            while self._token.text in _TYPE_WORDS:
                words.append(self._take().text)
            result = s.TypeName(" ".join(words))
        else:
            result = s.TypeName(self._take().text)
        while self._token.text in _QUALIFIERS:
            self._take()
        return result

    def _enum(self, attributes: s.Attributes) -> s.EnumType:
        self._expect("enum")
        tag = self._name() if self._token.kind == "name" else ""
        members: list[tuple[str, s.Expression | None]] = []
        if self._accept("{"):
            while not self._accept("}"):
                self._attributes()
                name = self._name()
                members.append((name, self._expression() if self._accept("=") else None))
                if self._token.text != "}":
                    self._expect(",")
        return s.EnumType(tag, members, "v1_enum" in attributes)

    def _struct(self) -> s.StructType:
        self._expect("struct")
        tag = self._name() if self._token.kind == "name" else ""
        if not self._accept("{"):
            return s.StructType(tag, None)
        members: list[s.MemberDecl] = []
        while not self._accept("}"):
            members.extend(self._members())
        return s.StructType(tag, members)

    def _members(self) -> list[s.MemberDecl]:
        line = self._token.line
        attributes = self._attributes()
        member_type = self._type(attributes)
        if self._accept(";"):  # an anonymous union or structure
            return [s.MemberDecl(attributes, member_type, None, line)]
        members = [s.MemberDecl(attributes, member_type, self._declarator(), line)]
        while self._accept(","):
            members.append(s.MemberDecl(attributes, member_type, self._declarator(), line))
        self._expect(";")
        return members

    def _union(self, attributes: s.Attributes) -> s.UnionType:
        self._expect("union")
        tag = self._name() if self._token.kind == "name" and self._token.text != "switch" else ""
        switch = None
        union_name = ""
        if self._accept("switch"):
            self._expect("(")
            switch_type = self._type()
            switch = (switch_type, self._name())
            self._expect(")")
            union_name = self._name() if self._token.kind == "name" else ""
        if not self._accept("{"):
            return s.UnionType(tag, None)
        arms: list[s.ArmDecl] = []
        while not self._accept("}"):
            arms.extend(self._arms())
        declared = attributes.get("switch_type")
        declared_type = s.TypeName(declared[0].text) if declared and isinstance(declared[0], s.Name) else None
        return s.UnionType(tag, arms, switch, union_name, declared_type)

    def _arms(self) -> list[s.ArmDecl]:
        labels: list[s.Expression] = []
        while self._token.text in ("case", "default"):  # the C spelling of an encapsulated union
            if self._take().text == "case":
                labels.append(self._expression())
            self._expect(":")
        line = self._token.line
        attributes = self._attributes()
        labels += [label for label in attributes.get("case", []) if label is not None]
        if self._accept(";"):
            return [s.ArmDecl(labels, s.MemberDecl(attributes, None, None, line))]
        arm_type = self._type()
        if self._token.text == ";" and isinstance(arm_type, s.StructType | s.UnionType):
            member = s.MemberDecl(attributes, arm_type, None, line)
        else:
            member = s.MemberDecl(attributes, arm_type, self._declarator(), line)
        self._expect(";")
        return [s.ArmDecl(labels, member)]

    def _declarator(self, optional_name: bool = False) -> s.Declarator:
        pointers = 0
        while self._token.text in ("*", *_QUALIFIERS):
            pointers += self._take().text == "*"
        if self._accept("("):  # `T (*name)[n]`
            inner = self._declarator()
            self._expect(")")
        elif self._token.kind == "name":
            inner = s.Declarator(self._take().text, [])
        elif optional_name:
            inner = s.Declarator("", [])
        else:
            raise self._error("a name")
        dimensions: list[str | s.Expression | None] = []
        while self._accept("["):
            if self._accept("]"):
                dimensions.append(None)
                continue
            if self._accept("*"):
                dimensions.append(None)
            else:
                dimensions.append(self._expression())
            self._expect("]")
        return s.Declarator(inner.name, [*inner.levels, *dimensions, *["*"] * pointers])

    # -- attributes and expressions --------------------------------------------------------------------------

    def _attributes(self) -> s.Attributes:
        attributes: s.Attributes = {}
        while self._token.text == "[" and self._token.kind == "op":
            self._take()
            while not self._accept("]"):
                name = self._name()
                attributes[name] = self._attribute_arguments(name) if self._token.text == "(" else []
                if self._token.text != "]":
                    self._expect(",")
                    if self._token.text == "]":
                        continue
        return attributes

    def _attribute_arguments(self, name: str) -> list[s.Expression | None]:
        self._expect("(")
        if name in _UUID_ATTRIBUTES:
            text = ""
            while not self._accept(")"):
                text += self._take().text
            return [s.Text(text.strip('"'))]
        if name == "version":
            text = ""
            while not self._accept(")"):
                text += self._take().text
            return [s.Text(text)]
        arguments: list[s.Expression | None] = []
        if self._accept(")"):
            return arguments
        while True:
            if self._token.text in (",", ")"):
                arguments.append(None)
            elif self._token.text in ("unsigned", "signed", "long", "short", "char", "int", "small"):
                words = []
                while self._token.text in _TYPE_WORDS:
                    words.append(self._take().text)
                arguments.append(s.Name(" ".join(words)))
            else:
                arguments.append(self._expression())
            if self._accept(")"):
                return arguments
            self._expect(",")

    def _expression(self, level: int = -1) -> s.Expression:
        if level == -1:
            condition = self._expression(0)
            if self._accept("?"):
                then = self._expression()
                self._expect(":")
                return s.Conditional(condition, then, self._expression())
            return condition
        if level == len(_PRECEDENCE):
            return self._unary()
        left = self._expression(level + 1)
        while self._token.kind == "op" and self._token.text in _PRECEDENCE[level]:
            operator = self._take().text
            left = s.Binary(operator, left, self._expression(level + 1))
        return left

    def _unary(self) -> s.Expression:
        if self._token.text in ("*", "-", "+", "~", "!", "&"):
            operator = self._take().text
            return s.Unary(operator, self._unary())
        if self._accept("("):
            inner = self._expression()
            self._expect(")")
            return inner
        token = self._take()
        if token.kind == "number":
            return s.Number(int(token.text.rstrip("uUlL"), 0)) if "." not in token.text else s.Text(token.text)
        if token.kind == "string":
            return s.Text(token.text.lstrip("L")[1:-1])
        if token.kind == "name":
            if token.text == "sizeof":
                self._expect("(")
                self._type()
                self._expect(")")
                return s.Text("sizeof")
            return s.Name(token.text)
        raise IdlError(f"{self._filename}:{token.line}: expected an expression, found {token.text!r}")
