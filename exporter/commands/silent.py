"""``doctor`` on rules and files: what goes silent when dcgm-exporter is upgraded."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from exporter.commands.translate import read_text
from exporter.config import Settings
from exporter.doctor import Check, degraded, missing
from exporter.doctor.own_series import own_checks
from exporter.doctor.silent import Reader, SeriesNow, SilentReport, judge
from exporter.fleet.commands import prometheus_of
from exporter.fleet.prometheus import Prometheus, PrometheusError
from exporter.fleet.rules import Rules, read_rules, series_by_name, series_with_label
from exporter.translate.documents import UnreadableFileError
from exporter.translate.files import recording_rules, records_of, translate_file
from exporter.translate.findings import Lines
from exporter.translate.names import TARGETS, Names
from exporter.translate.uses import expression_use
from exporter.wording import plural

NAMES = TARGETS["dcgm-4.9"]
RULES_UNREADABLE = missing("rules-unreadable", "what its rules read", "check --prometheus-url and its access")
RULES_INCOMPLETE = degraded("rules-incomplete", "what some rules read", "fix what the server reports")
NO_RULES = degraded(
    "no-rules",
    "what the rules of another server read",
    "ask the server that evaluates them, such as Thanos Ruler, Mimir's ruler or vmalert",
)
SERIES_UNREADABLE = degraded(
    "series-unreadable",
    "whether rules are silent already",
    "ask a server that has the series too; vmalert has none",
)
FILE_UNREADABLE = missing("file-unreadable", "what its expressions read", "correct the file")


async def find_silent(files: Sequence[str], settings: Settings) -> SilentReport:
    """Return the report on files, and on the Prometheus in the settings if there is one."""
    if settings.prometheus_url is None:
        return await _report(files, None, "")
    prometheus = prometheus_of(settings)
    try:
        return await _report(files, prometheus, _address(settings.prometheus_url))
    finally:
        await prometheus.close()


async def _report(files: Sequence[str], prometheus: Prometheus | None, address: str) -> SilentReport:
    checks: list[Check] = []
    texts = _texts(files, checks)
    rules = Rules() if prometheus is None else await _rules(prometheus, checks)
    names = _names(rules, texts)
    readers = [*_readers_of_rules(rules, names, checks), *_readers_of_files(texts, names, checks)]
    own = _places_of_own_series(readers)
    now = None if prometheus is None else await _series_now(prometheus, own, checks)
    checks += own_checks(own, None if now is None else now.series)
    sources = [f"Prometheus {address}"] if address else []
    sources += [plural(len(files), "file")] if files else []
    return SilentReport(sources, checks, judge(readers, now), now)


def _texts(files: Sequence[str], checks: list[Check]) -> dict[str, str]:
    texts = {}
    for file in files:
        try:
            texts[file] = read_text(file)
        except UnreadableFileError as error:
            checks.append(FILE_UNREADABLE.check(file, str(error)))
    return texts


async def _rules(prometheus: Prometheus, checks: list[Check]) -> Rules:
    try:
        rules = await read_rules(prometheus)
    except PrometheusError as error:
        checks.append(RULES_UNREADABLE.check("rules", str(error)))
        return Rules()
    checks += [RULES_INCOMPLETE.check("rules", problem) for problem in rules.incomplete]
    if not rules.rules:
        checks.append(NO_RULES.check("rules", "the server has none"))
    return rules


def _names(rules: Rules, texts: Mapping[str, str]) -> Names:
    """Return the names that change, and the records of the rules, whose names do not."""
    recording = [(rule.name, rule.query) for rule in rules.rules if rule.kind == "record"]
    recording += [each for text in texts.values() for each in recording_rules(text)]
    found = records_of(recording, NAMES)
    return NAMES.keep(found).with_records(found)


def _readers_of_rules(rules: Rules, names: Names, checks: list[Check]) -> Sequence[Reader]:
    readers = [
        Reader(f"{rule.kind} {rule.name}", expression_use(rule.query, names), rule.file, rule.group)
        for rule in rules.rules
    ]
    if readers:
        groups = plural(rules.groups, "group")
        checks.append(
            Check("rules", "OK", f"{plural(len(readers), 'rule')} in {groups}, {_renamed(readers)}")
        )
    return readers


def _readers_of_files(texts: Mapping[str, str], names: Names, checks: list[Check]) -> Iterator[Reader]:
    for file, text in texts.items():
        try:
            uses = translate_file(text, names, whole=True).uses
        except UnreadableFileError as error:
            checks.append(FILE_UNREADABLE.check(file, str(error)))
            continue
        lines = Lines(text)
        readers = [Reader(each.owner, each.use, file, line=lines.number(each.place)) for each in uses]
        checks.append(Check(file, "OK", f"{plural(len(readers), 'expression')}, {_renamed(readers)}"))
        yield from readers


def _renamed(readers: Iterable[Reader]) -> str:
    return f"{sum(reader.use.is_renamed for reader in readers)} of them on names that change"


def _places_of_own_series(readers: Iterable[Reader]) -> Mapping[str, Sequence[str]]:
    places = defaultdict(list)
    for reader in readers:
        for name in reader.use.own:
            places[name].append(f"{reader.owner} ({reader.place})" if reader.owner else reader.place)
    return places


async def _series_now(prometheus: Prometheus, own: Iterable[str], checks: list[Check]) -> SeriesNow | None:
    """Return the series of both dialects, with a query for each, and those of our own names."""
    try:
        old = await series_by_name(prometheus, NAMES.series.keys())
        new = await series_by_name(prometheus, {series.name for series in NAMES.series.values()})
        ours = await series_by_name(prometheus, [*own])
        labels = {
            label: await series_with_label(prometheus, label)
            for pair in NAMES.labels.items()
            for label in pair
        }
    except PrometheusError as error:
        checks.append(SERIES_UNREADABLE.check("series now", str(error)))
        return None
    with_label = [f"{count:,} with {label}" for label, count in labels.items() if count]
    text = "; ".join((f"{_counted(old)} under old names", f"{_counted(new)} under new names", *with_label))
    checks.append(Check("series now", "OK", text))
    return SeriesNow({**old, **new, **ours}, labels)


def _counted(series: Mapping[str, int]) -> str:
    return f"{sum(series.values()):,}"


def _address(url: str) -> str:
    """Return a URL without its name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
