"""Reads C++ just well enough to check it: text without comments, includes, functions with their
sizes.

Not a parser: it follows braces through namespaces and classes and takes for a function what looks
like one there. Inside a function it counts lines only, so a lambda belongs to the function around
it.
"""

import bisect
import dataclasses
import re

TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<raw>R"(?P<tag>[^()\s]{0,16})\(.*?\)(?P=tag)")'
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    r"|(?P<separator>(?<=[0-9a-fA-F])'(?=[0-9a-fA-F]))"
    r"|(?P<char>'(?:\\.|[^'\\\n])*')",
    re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"\n]+[>"])', re.MULTILINE)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b|\bextern\s*\"\s*\"")
CONTROL = re.compile(
    r"^\s*(if|for|while|switch|catch|do|else|return|using|typedef|static_assert)\b"
)
ACCESS = re.compile(r"^\s*(public|private|protected)\s*:(?!:)")
NO_FUNCTION = "decltype noexcept alignas requires __attribute__ __launch_bounds__".split()
NAME_BEFORE_PAREN = re.compile(r"(operator\s*\S{1,3}|operator\s+[\w:]+|~?\w+)\s*$")


@dataclasses.dataclass
class Function:
    name: str
    line: int  # where its signature begins, from 1
    lines: int  # to the closing brace; 0 for a declaration
    parameters: int
    is_kernel: bool  # __global__


def without_comments(text):
    """Comments blanked; line breaks, and with them line numbers, kept."""
    return _blank(text, {"comment"})


def includes(text):
    """What stands after #include, with its <> or quotes, in order."""
    return INCLUDE.findall(without_comments(text))


def functions(text):
    """Functions defined or declared at namespace or class level."""
    code = DIRECTIVE.sub(_blanked, _blank(text, {"comment", "string", "raw", "char"}))
    line_ends = [match.start() for match in re.finditer("\n", code)]
    found, stack, begin, at = [], [], 0, 0
    while match := re.compile(r"[{};]").search(code, at):
        at = match.end()
        header = code[begin : match.start()]
        if match[0] == "{":
            kind = _kind_of_block(header)
            if kind == "function":
                end = _closing_brace(code, match.start())
                found.append(_function(header, begin, end, line_ends))
                begin = at = end + 1
                continue
            if kind == "inner":  # an initialiser: its braces are part of the statement
                at = _closing_brace(code, match.start()) + 1
                continue
            stack.append(kind)
        elif match[0] == "}":
            stack and stack.pop()
        elif _is_signature(header):
            found.append(_function(header, begin, None, line_ends))
        begin = at
    return found


def _blank(text, kinds):
    def replace(match):
        if match.lastgroup == "tag":  # the innermost named group of a raw string
            return _blanked(match) if "raw" in kinds else match[0]
        kind = next(name for name, value in match.groupdict().items() if value and name != "tag")
        if kind not in kinds:
            return match[0]
        quotes = match[0][0] if kind in ("string", "char") else ""
        return quotes + _blanked(match)[len(quotes) * 2 :] + quotes

    return TOKEN.sub(replace, text)


def _blanked(match):
    return re.sub(r"[^\n]", " ", match[0])


def _closing_brace(code, opening):
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, opening):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    return len(code) - 1


def _kind_of_block(header):
    if header.count("(") > header.count(")"):
        return "inner"  # a default argument
    if _is_signature(header):
        has_initialisers = re.search(r"(?<!:):(?!:)", _outside_parens(ACCESS.sub("", header)))
        # A body follows a closing bracket there, a name is followed by its own braces: b_{1}.
        return "inner" if has_initialisers and re.search(r"\w\s*$", header) else "function"
    if SCOPE.search(_outside_parens(header)):
        return "scope"
    return "inner"


def _outside_parens(text):
    """The text with parentheses and template arguments, and what is between them, blanked."""
    depth, out = 0, []
    for index, char in enumerate(text):
        opens = char == "(" or (char == "<" and re.search(r"(\w|operator)$", text[:index]))
        closes = char == ")" or (char == ">" and depth and text[index - 1] != "-")
        depth += bool(opens)
        out.append(" " if depth else char)
        depth -= bool(closes and depth)
    return "".join(out)


def _parameter_list(header):
    """(name, text between the parentheses) of the first call-like thing in a signature, or None."""
    depth_angle = 0
    for index, char in enumerate(header):
        before = header[:index]
        if char == "<" and re.search(r"\w\s*$", before) and "operator" not in before:
            depth_angle += 1
        elif char == ">" and depth_angle:
            depth_angle -= 1
        elif char == "(" and not depth_angle:
            name = NAME_BEFORE_PAREN.search(header[:index])
            if not name or name[1] in (
                "decltype",
                "noexcept",
                "alignas",
                "__attribute__",
                "requires",
            ):
                continue
            if name[1] in ("__launch_bounds__",):
                continue
            return name[1], header[index + 1 : _closing_paren(header, index)]
    return None


def _closing_paren(text, opening):
    depth = 0
    for index in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return len(text)


def _is_signature(header):
    header = ACCESS.sub("", header)
    outside = _outside_parens(header)
    if CONTROL.match(header):
        return False
    if SCOPE.search(outside) and not re.search(r"\)\s*$", header.rstrip()):
        return False
    found = _parameter_list(header)
    if not found:
        return False
    is_assignment = re.search(r"(?<![=!<>])=(?!=)", header[: header.index("(")])
    return "operator" in header or not is_assignment


def _function(header, begin, end, line_ends):
    header = ACCESS.sub(_blanked, header)
    name, parameters = _parameter_list(header)
    start = begin + len(header) - len(header.lstrip())
    line = bisect.bisect_left(line_ends, start) + 1
    lines = bisect.bisect_left(line_ends, end) + 2 - line if end is not None else 0
    return Function(name, line, lines, _count(parameters), "__global__" in header)


def _count(parameters):
    flat = _flat(parameters).strip()
    return 0 if flat in ("", "void") else flat.count(",") + 1


def _flat(text):
    """The text without what stands between brackets of any kind."""
    previous = None
    while text != previous:
        previous = text
        text = re.sub(r"\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\]|<[^<>]*>", "", text)
    return text
