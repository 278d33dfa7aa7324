"""All user-facing sentences of the project, and what is wrong with their wording: `python -m tests.words` lists both.

Texts are the docstrings of public names, every string of four words or more in `src` (messages, help, the report), the
templates of the report, the README, the unreleased part of the changelog and the pages in `docs`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import mean
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
AVERAGE, LONGEST = 20, 35  # words of a sentence: on average in a page or a room of src, and at most

# What not to write, and what to write instead: the tables of the style guide and of the issue on plain English
PHRASES = {
    r"\bon the way\b": "in between, along the path",
    r"\bwalk(s|ed|ing)?\b": "path",
    r"\barrows?\b": "contrast, direction",
    r"\bwholeness\b": "consistency",
    r"\bsettled\b": "population constants",
    r"\bsureness\b": "certainty",
    r"\bsurely\b": "significantly, certainly",
    r"\bdoubts\b": "warnings",
    r"\bearlier audits?\b": "stored audit",
    r"\bdecided on (otherwise|differently)": "whose decision would change",
    r"as it is by itself|not among the settings": "All other options have their defaults.",
    r"\bgone on with\b": "resumed",
    r"treated differently by more than": "significantly affected: their prediction shifts by more than",
    r"how many are looked at|of such a list": "False discovery rate: 10 %.",
    r"\b(holds?|held) still\b|may rightly|tell the groups apart": "treats these columns as valid business reasons",
    r"once in \w+ times by chance|\b[Ii]t takes \d+ people|\bIt takes \d+\.": "At least 59 people are needed to pass.",
    r"at least one half|only in (another group|their own)": "At the cut-off 0.5, 189 women would gain approval.",
}
# Names of modules, classes, functions, fields and constants that say nothing: write the noun
NAMES = {
    *("way", "walk", "arrow", "told", "known", "seen", "found", "said", "case", "question", "stand", "place", "part"),
    *("piece", "wholeness", "settled", "sureness", "doubts", "earlier"),
}
STORED = {"FittedTest.known", "Spread.seen", "Steps.seen", "Levels.seen", "RankPlan.seen"}  # fields in files of tests
# Sentences of more than LONGEST words that stay, by how they begin, and why
LONG: dict[str, str] = {
    "The protected column 'X' has X different values": "one error with the three ways out",
    "The model has only category numbers for 'X'": "one error with both ways out",
}


class Text(NamedTuple):
    """A passage that users read: its family (a page, or a room of src), the place, and the words."""

    family: str
    place: str
    words: str


@cache
def texts() -> tuple[Text, ...]:
    """Return every user-facing passage of the project."""
    return tuple(_texts())


def _texts() -> Iterator[Text]:
    for path in sorted((ROOT / "src/fairfox").rglob("*")):
        name = str(path.relative_to(ROOT))
        family = "/".join(name.removesuffix(".py").split("/")[:3])
        if path.suffix == ".py":
            for line, words in sorted(_python(ast.parse(path.read_text(encoding="utf-8")))):
                yield Text(family, f"{name}:{line}", words)
        elif path.suffix == ".j2":
            yield from (Text(family, name, words) for words in _markup(path.read_text(encoding="utf-8")))
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        name, content = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        if name == "CHANGELOG.md":
            content = content.partition("## [Unreleased]")[2].partition("\n## ")[0]
        yield from (Text(name, name, words) for words in _markdown(content))


def sentences(words: str) -> list[str]:
    """Return the sentences of a passage that have four words or more."""
    words = re.sub(r"\b(e\.g|i\.e|vs|al|eq|cf|Fig|Sec|etc)\.", r"\1", re.sub(r"\s+", " ", words))
    return [s for s in re.split(r"(?<=[.!?])[\"')]* +(?=[A-Z\"'`(0-9])", words) if length(s) >= 4]


def length(sentence: str) -> int:
    """Return how many words a sentence has; a formula and a piece of code are one."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def _python(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of docstrings of public names and of all strings of four words or more."""
    docs = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for child in node.body:  # docstrings, and strings below a field
                if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                    docs.add(child.value)
            text = ast.get_docstring(node)
            if text and not getattr(node, "name", "").startswith("_"):
                for paragraph in _paragraphs(text):
                    yield node.body[0].lineno, paragraph
    inner = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inner |= {part for node in ast.walk(tree) if _glued(node) for part in (node.left, node.right)}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if node not in docs and node not in inner and isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            text = _spoken(node)
            if length(text) >= 4 and "\nimport " not in text:  # a program
                yield node.lineno, text


def _glued(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and bool(_spoken(node))


def _spoken(node: ast.AST) -> str:
    """Return the text of a string expression, with X where a value goes; "" for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_spoken(part) or "X" for part in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, two = _spoken(left), _spoken(right)
            return (one or "X") + (two or "X") if one or two else ""
    return ""


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring, without examples and without the names of arguments."""
    text = re.sub(r"^ *(>>>|\.\.\.).*\n?(?:(?! *>>>) *\S.*\n?)*", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^(Args|Returns|Raises|Example|Attributes|Yields):\n", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^    \*{0,2}\w+(, \*{0,2}\w+)*: ", "\n", text, flags=re.MULTILINE)
    yield from re.split(r"\n\s*\n", _plain(text))


def _markdown(text: str) -> Iterator[str]:
    """Yield the paragraphs of a page, without code, tables, formulas and headings."""
    text = re.sub(r"^( *)(```|~~~|:::).*?^\1\2`*$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->|^\$\$.*?\$\$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ *\|.*$|^#.*$|^\[\^?[\w-]+\]:.*$|^:\w+:.*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ *([-*+]|\d+\.|>) +", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\](\([^)]*\)|\[[^\]]*\])", r"\1", text)
    yield from re.split(r"\n\s*\n", _plain(re.sub(r"</?\w[^>]*>", "\n\n", text)))


def _markup(text: str) -> Iterator[str]:
    """Yield the passages of a template."""
    text = re.sub(r"{#.*?#}|<(style|script)\b.*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r"{{.*?}}", "X", text, flags=re.DOTALL)
    text = re.sub(r"{%-? *(else|elif|for|endfor|macro|endmacro|set|block|call).*?%}", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"{%.*?%}|</?(a|b|strong|em|i|span|code|abbr|small|sup)\b[^>]*>", "", text, flags=re.DOTALL)
    yield from re.split(r"\n\s*\n", re.sub(r"<[^>]*>", "\n\n", text))


def _plain(text: str) -> str:
    """Return a text with each formula or piece of code as one word."""
    return re.sub(r"(`+)(?:(?!`).)+\1|\$[^$\n]+\$", "X", text, flags=re.DOTALL)


def phrases() -> list[str]:
    """Return "place: phrase; write ..." for each phrase that the style guide does not want."""
    out = []
    for text in texts():
        words = " ".join(text.words.split())
        for phrase, better in PHRASES.items():
            for match in re.finditer(phrase, words):
                around = words[max(0, match.start() - 40) : match.end() + 30]
                out.append(f"{text.place}: {around!r}; write {better!r}")
    return out


def names() -> list[str]:
    """Return "place: name" for modules, classes, functions, fields and constants that have a name of NAMES."""
    out = []
    for path in sorted((ROOT / "src/fairfox").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for body in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]:
            for node in body.body:
                match node:
                    case ast.FunctionDef() | ast.ClassDef():
                        own = [node.name]
                    case ast.Assign(targets=targets):
                        own = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        own = [name]
                    case _:
                        own = []
                full = [f"{body.name}.{name}" if isinstance(body, ast.ClassDef) else name for name in own]
                bad = [each for each in full if each.split(".")[-1].strip("_").lower() in NAMES and each not in STORED]
                out += [f"{path.relative_to(ROOT)}:{node.lineno}: {each}" for each in bad]
    return out


def averages() -> dict[str, tuple[int, float]]:
    """Return how many sentences each family has and how many words these have on average."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for text in texts():
        lengths[text.family] += [length(sentence) for sentence in sentences(text.words)]
    return {family: (len(each), mean(each)) for family, each in lengths.items() if each}


def long() -> list[tuple[int, str, str]]:
    """Return the words, the place and the text of each sentence of more than LONGEST words, longest first."""
    every = ((length(s), text.place, s) for text in texts() for s in sentences(text.words))
    return sorted((each for each in every if each[0] > LONGEST), reverse=True)


def reason(sentence: str) -> str:
    """Return why a long sentence stays, "" where it may not."""
    return next((why for start, why in LONG.items() if sentence.startswith(start)), "")


def main() -> None:
    """Print the statistics, and everything that the tests of wording would reject."""
    counts = averages()
    for family, (count, words) in counts.items():
        print(f"{count:6,} sentences of {words:5.1f} words  {family}{'  OVER' * (words > AVERAGE)}")
    total = sum(count for count, _ in counts.values())
    print(f"{total:6,} sentences of {sum(c * w for c, w in counts.values()) / total:5.1f} words in all")
    print(f"\nOver {LONGEST} words:")
    for words, place, sentence in long():
        print(f"{words:4} {place} [{reason(sentence) or 'NO REASON'}]\n     {sentence}")
    print("\nPhrases and names:", *phrases(), *names(), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
