"""The names of a kernel's parameters, read from its source for messages; a kernel's mangled name has none."""

from __future__ import annotations

import re

_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.DOTALL)
_TYPES = {"bool", "char", "const", "double", "float", "int", "long", "short", "signed", "unsigned", "void"}
_BRACKETS = {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1}
_NAME = re.compile(r"[\w:>*&\]\)]\s*[\s*&]\s*(\w+)\s*(?:\[[^\]]*\]\s*)*$")


def parameter_names(code: str, name: str, count: int) -> list[str] | None:
    """Return the names of `count` parameters, "" for those without one; None where the source does not tell.

    `name` is what the kernel was asked for by: ``ours::add<float>``. Of overloads with as many parameters all have to
    agree. Raw strings and macros are not looked into.
    """
    code = _NO_CODE.sub(" ", code)
    base = re.escape(name.partition("<")[0].rpartition("::")[2].strip())
    found: list[list[str]] = []
    for match in re.finditer(rf"\b{base}\s*\(", code):
        begin = max(code.rfind(mark, 0, match.start()) for mark in ";{}")
        text = _until_closed(code, match.end())
        if text is None or "__global__" not in code[begin + 1 : match.start()]:
            continue
        names = [_name_of(part) for part in _split(text)]
        if len(names) == count and names not in found:
            found.append(names)
    return found[0] if len(found) == 1 else None


def _until_closed(code: str, begin: int) -> str | None:
    depth = 1
    for i in range(begin, len(code)):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if depth == 0:
            return code[begin:i]
    return None


def _split(text: str) -> list[str]:
    """Return what commas separate that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += _BRACKETS.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [] if [part.strip() for part in parts] in ([""], ["void"]) else parts


def _name_of(part: str) -> str:
    match = _NAME.search(part.partition("=")[0].rstrip())
    return match[1] if match and match[1] not in _TYPES else ""
