"""The report page: one file that needs no network, whose numbers are those of the records."""

import json
import math
import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable

import pytest

from t1_trainer.config import Config
from t1_trainer.evaluation import Evaluation
from t1_trainer.files import json_text
from t1_trainer.report import write_report
from t1_trainer.report.catalogue import LAUNCHED, SECTIONS, STEP_PARTS, STEP_WHOLE
from t1_trainer.rollout.messages import Attempt
from t1_trainer.run_directory import RunDirectory
from t1_trainer.run_summary import run_summary

MEASURES = [m for charts in SECTIONS.values() for chart in charts for m in chart.measures]
KEYS = sorted(
    {m.key for m in [*MEASURES, *STEP_PARTS, STEP_WHOLE]} | {"rollout/admitted", "retention/links"}
)


def record(step: int, *, without: Iterable[str] = ()) -> dict:
    """A step that measured everything, in numbers that no rounding survives."""
    draw = random.Random(step)
    measured = {key: draw.random() for key in KEYS}
    measured |= {"rollout/admitted": 90 + step % 7, "rollout/cancelled": 3, "rollout/invalid": 1}
    return {"step": step} | {k: v for k, v in measured.items() if k not in set(without)}


def evaluation(resolved: Iterable[bool]) -> Evaluation:
    attempts = [
        Attempt(f"{n}", ("links",), 1 + n % 2, float(r), r, 4, skills=("make-symlink",))
        for n, r in enumerate(resolved)
    ]
    return Evaluation({"sampled": attempts, "greedy": attempts[:1]})


class Page:
    """A rendered run: its text, its tree, and the records it was made from."""

    def __init__(self, path, records: list[dict], *, through_json: bool = False) -> None:
        run = RunDirectory.create(path, Config())
        for line in records:
            retention = {"links": {"launched": 9, "admitted": 7}}
            run.record_step(line, {"retention": retention})
        summary = run_summary(run, evaluation([False] * 30), evaluation([True] * 29 + [False]), 90)
        write_report(run, json.loads(json_text(summary)) if through_json else summary)
        run.close()
        self.summary = summary
        self.text = (run.path / "report.html").read_text()
        self.tree = ET.fromstring(self.text)
        self.records = run.lines("metrics.jsonl")

    def figures(self) -> dict[str, ET.Element]:
        return {
            "".join(figure.find("figcaption/h3").itertext()): figure
            for figure in self.tree.iter("figure")
        }

    def numbers(self, title: str) -> dict[str, dict[int, float]]:
        """Column name to step to number, from the table under a chart."""
        header, *rows = self.figures()[title].findall("details//tr")
        names = [cell.text for cell in header.findall("th")][1:]
        columns: dict[str, dict[int, float]] = {name: {} for name in names}
        for row in rows:
            step, *cells = row.findall("td")
            for name, cell in zip(names, cells, strict=True):
                if (data := cell.find("data")) is not None:
                    columns[name][int(step.text)] = float(data.get("value"))
        return columns


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Page:
    return Page(tmp_path_factory.mktemp("full") / "run", [record(s) for s in range(1, 41)])


def is_measured(figure: ET.Element) -> bool:
    return figure.find("svg") is not None


def test_every_number_under_a_line_chart_is_that_of_the_record(page):
    launched = Config().launched_trials
    for chart in (chart for charts in SECTIONS.values() for chart in charts):
        shown = page.numbers(chart.title)
        for measure in chart.measures:
            bases = [
                launched if measure.per == LAUNCHED else r.get(measure.per, 1) for r in page.records
            ]
            expected = {
                r["step"]: r[measure.key] / base
                for r, base in zip(page.records, bases, strict=True)
            }
            assert shown[measure.label] == expected, measure


NAMED = [
    ("Explained variance of the critic", "critic", "critic/explained_variance"),
    ("Explained variance of the critic", "cold critic", "critic/explained_variance_cold"),
    (
        "Gap between trainer and sampler",
        "text tokenized again, free routing",
        "gap/logprob_retokenized",
    ),
    ("Gap between trainer and sampler", "sampled token ids, free routing", "gap/logprob_free"),
    (
        "Gap between trainer and sampler",
        "sampled token ids, replayed routing",
        "gap/logprob_replay",
    ),
    ("Routing disagreement", "free routing", "gap/routing_disagreement_free"),
    ("Routing disagreement", "replayed routing", "gap/routing_disagreement_replay"),
    ("Clipped", "policy ratio", "policy/clip_fraction"),
    ("Clipped", "critic value", "critic/clip_fraction"),
    ("Turns", "turns", "rollout/turns_mean"),
    ("Rollout beside training", "rollout process, CPU", "time/rollout_cpu_s"),
    ("Rollout beside training", "sandboxes, CPU", "time/sandbox_cpu_s"),
    ("Rollout beside training", "trainer process, CPU", "time/cpu_s"),
    ("Overlap", "overlap ratio", "time/overlap_ratio"),
]


@pytest.mark.parametrize(("title", "label", "key"), NAMED)
def test_a_line_has_the_name_of_what_it_shows(page, title, label, key):
    assert page.numbers(title)[label] == {r["step"]: r[key] for r in page.records}


def test_a_number_that_is_not_the_record_s_would_be_noticed(page):
    shown = page.numbers("Reward")["mean reward"]
    assert shown[7] == page.records[6]["reward/mean"]
    assert shown[7] != float(f"{page.records[6]['reward/mean']:.6g}")


def test_the_parts_of_a_step_add_up_to_the_step(page):
    shown = page.numbers("Where a step's time goes")
    for line in page.records:
        step = line["step"]
        for part in STEP_PARTS:
            assert shown[part.label][step] == line[part.key]
        total = sum(column[step] for column in shown.values())
        assert total == pytest.approx(line["time/step_s"])


def test_retention_is_that_of_the_records_and_of_the_whole_run(page):
    shown = page.numbers("links")["links"]
    assert shown == {r["step"]: r["retention/links"] for r in page.records}
    assert "78% of 360 launched" in page.text


def test_groups_are_those_of_the_summary(page):
    tables = {t.get("data-groups"): t for t in page.tree.iter("table") if t.get("data-groups")}
    for decoding, kinds in page.summary["heldout_groups"].items():
        groups = [group for members in kinds.values() for group in members.values()]
        shown = [float(data.get("value")) for data in tables[decoding].iter("data")]
        expected = [
            value for g in groups for value in (g["before"], g["after"], g["change"]["mean"])
        ]
        assert shown == expected


def test_the_page_opens_with_the_result_and_says_what_moved(page):
    words = " ".join("".join(page.tree.itertext()).split())
    assert (
        "Held-out tasks resolved, sampled: 0.0 % before training, 96.7 % after; "
        "paired change +96.7 (+90.1 to +103.2) points: a rise."
    ) in words
    # one task is no evidence, and has no interval
    assert "greedy: 0.0 % before training, 100.0 % after" in words
    assert "paired change +100.0 points (one task: no interval): no change is shown" in words
    assert "Moved (points): links +97, make-symlink +97, length 1 +100, length 2 +93." in words
    assert "Not shown to move: links, make-symlink, length 1." in words


def test_the_page_loads_nothing(page):
    pattern = r"(?:src|href|srcset|action)\s*=|https?://|<script|@import|url\(|<link|<iframe"
    assert re.findall(pattern, page.text) == []
    for planted in ('<img src="x">', "background: url(x)", '<link rel="x">'):
        assert re.findall(pattern, planted)


def test_everything_shown_has_a_colour_and_is_a_number(page):
    style = "".join(page.tree.find("head/style").itertext())
    for element in page.tree.iter():
        for name in element.get("class", "").split():
            assert f".{name}" in style, name
        if element.tag in ("path", "rect", "circle", "text"):
            values = " ".join(element.attrib.values()).lower()
            assert not re.search(r"\b(nan|inf|none)\b", values), values


def test_the_page_is_for_phones_dark_rooms_and_paper(page):
    assert 'name="viewport"' in page.text
    assert "prefers-color-scheme: dark" in page.text
    assert "@media print" in page.text


def test_a_long_run_is_smoothed_and_the_page_says_how(page):
    reward = page.figures()["Reward"]
    assert [p.get("class") for p in reward.iter("path") if "line" in p.get("class")] == [
        "line raw s0",
        "line smooth s0",
    ]
    assert "mean over up to 5 neighbouring steps" in page.text


def test_explained_variance_has_a_line_at_zero(page):
    kinds = [
        path.get("class")
        for path in page.figures()["Explained variance of the critic"].iter("path")
    ]
    assert kinds.count("zero") == 1


def test_each_step_shows_its_numbers_when_pointed_at(page):
    columns = page.figures()["Resolved"].findall("svg/rect/title")
    assert len(columns) == 40
    share = page.records[2]["reward/resolved"]
    assert columns[2].text == f"step 3\nresolved: {100 * share:.3g} %"


def test_a_run_without_diagnostics_says_what_it_did_not_measure(tmp_path):
    absent = [key for key in KEYS if key.startswith("gap/")]
    absent += ["critic/explained_variance_cold", "rollout/fallback", "time/overlap_ratio"]
    bare = Page(tmp_path / "run", [record(s, without=absent) for s in range(1, 20)])
    figures = bare.figures()
    for title in ("Gap between trainer and sampler", "Largest gap", "Overlap"):
        assert not is_measured(figures[title])
        assert "Not measured in this run." in "".join(figures[title].itertext())
    assert bare.numbers("Lost and rescued trials").keys() == {"cancelled", "invalid"}
    assert "fallback (not measured)" in bare.text
    assert "cold critic (not measured)" in bare.text


def test_a_number_missing_at_some_steps_is_named_and_the_line_goes_on(tmp_path):
    lines = [record(s) for s in range(1, 5)]
    lines[1]["critic/explained_variance"] = float("nan")
    del lines[2]["policy/grad_norm"]
    gaps = Page(tmp_path / "run", lines)
    assert gaps.numbers("Gradient norm of the policy")["gradient norm"].keys() == {1, 2, 4}
    shown = gaps.numbers("Explained variance of the critic")["critic"]
    assert shown.keys() == {1, 3, 4}
    assert gaps.text.count("<td>not measured</td>") == 2


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_of_no_steps_or_one_has_a_page(tmp_path, steps):
    short = Page(tmp_path / "run", [record(s + 1) for s in range(steps)])
    assert is_measured(short.figures()["Reward"]) == bool(steps)
    assert "too short for smoothing" in short.text


def test_a_summary_read_from_disk_gives_the_same_page(tmp_path):
    # intervals of one task have no ends: NaN in memory, null in JSON
    lines = [record(s) for s in range(1, 3)]
    memory, disk = (
        Page(tmp_path / "a" / "run", lines),
        Page(tmp_path / "b" / "run", lines, through_json=True),
    )
    assert math.isnan(memory.summary["heldout_change"]["greedy"]["resolved"]["low"])
    assert memory.text == disk.text


def test_a_summary_of_an_older_run_has_no_groups(tmp_path):
    run = RunDirectory.create(tmp_path / "run", Config())
    run.record_step(record(1), {"retention": {}})
    summary = run_summary(run, evaluation([False, True]), evaluation([True, True]), 90)
    del summary["heldout_groups"]
    write_report(run, summary)
    run.close()
    assert "Not measured in this run." in (run.path / "report.html").read_text()


def test_text_from_a_run_is_escaped(tmp_path):
    odd = Page(tmp_path / "<b>&amp;", [record(1)])
    assert "<b>&amp;" not in odd.text.replace("&lt;b&gt;&amp;amp;", "")
    assert odd.tree.find("body/h1").text == "Run <b>&amp;"
