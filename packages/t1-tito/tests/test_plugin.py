"""The pytest plugin, run as its users run it."""

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from t1_tito import FidelityError
from t1_tito.testing import EngineProbe
from t1_tito.testing.chat_conformance import CHAT_CHECKS, check_chat
from t1_tito.testing.engine_probe import PROBE_CHECKS, EngineError
from t1_tito.testing.user_chat import load_chat
from t1_tito.tiny import TINY_FOLDER

HERE = Path(__file__).parent
pytest_plugins = ["pytester"]


def run_pytest(folder, *arguments):
    """Run pytest in a folder that holds the subjects."""
    (folder / "subjects.py").write_text((HERE / "subjects.py").read_text(encoding="utf-8"))
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture
def inner(pytester):
    """Runs pytest in this process, in a folder that holds the subjects."""
    pytester.makepyfile(subjects=(HERE / "subjects.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]")
    return pytester.runpytest_inprocess


def test_without_an_option_the_plugin_imports_nothing(tmp_path):
    (tmp_path / "test_one.py").write_text(
        "import sys\n"
        "def test_one():\n"
        "    assert '_t1_tito_pytest' in sys.modules\n"
        "    assert not any(name.split('.')[0] in ('t1_tito', 'numpy') for name in sys.modules)\n"
    )
    result = run_pytest(tmp_path)
    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout


def test_a_good_subject_passes_every_item(inner):
    result = inner("--tito-assembler=subjects:own", "--tito-examples=2")
    result.assert_outcomes(passed=16)


def test_a_strict_merge_passes_and_says_what_it_does_not_do(inner):
    result = inner("--tito-assembler=subjects:strict_merge", "--tito-examples=4", "-rs")
    result.assert_outcomes(passed=9, skipped=7)
    result.stdout.fnmatch_lines(["*its samples name no origins*"])


@pytest.mark.parametrize(
    ("subject", "invariant"), [("reencoding", "emit"), ("overwriting", "once")]
)
def test_a_faulty_subject_fails_with_a_case_that_replays(tmp_path, subject, invariant):
    result = run_pytest(
        tmp_path, f"--tito-assembler=subjects:{subject}", "--tito-examples=15", "-k", invariant
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{invariant} broken" in result.stdout
    assert "user\\n" in result.stdout  # the case's text, beside its ids
    path = re.search(r"t1-tito replay (\S+\.json)", result.stdout)[1]
    assert json.loads(Path(path).read_text())["subject"] == f"subjects:{subject}"
    replayed = subprocess.run(
        [sys.executable, "-m", "t1_tito", "replay", path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert replayed.returncode == 1, replayed.stderr
    assert f"{invariant} broken" in replayed.stdout


def test_the_plugins_items_join_a_projects_own_tests(inner, pytester):
    pytester.makepyfile(test_one="def test_one(): pass")
    arguments = ("--tito-assembler=subjects:per_turn", "--tito-examples=1", "-v", "-k")
    result = inner(*arguments, "test_one or emit")
    result.assert_outcomes(passed=2, deselected=15)
    result.stdout.fnmatch_lines(["*test_one.py::test_one PASSED*", "*assembler?emit? PASSED*"])
    inner(*arguments, "tito and shape").assert_outcomes(passed=1, deselected=16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tito-assembler=subjects:nothing",), "has no attribute 'nothing'"),
        (("--tito-assembler=buggy:merge",), "No module named 'buggy': run it from the folder"),
        (("--tito-assembler=subjects",), "package.module:callable"),
        (("--tito-template=x.jinja",), "--tito-template needs --tito-tokenizer"),
        (("--tito-assembler=subjects:own", "--tito-examples=0"), "at least 1"),
        (("--tito-tokenizer=none.json",), "none.json"),
        (("--tito-engine=somewhere",), "expected a URL"),
    ],
)
def test_wrong_usage_is_named(inner, arguments, message):
    result = inner(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{message}*"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_a_missing_extra_is_named(tmp_path):
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['hypothesis'] = None\n")
    result = run_pytest(tmp_path, "-p", "no:hypothesispytest", "--tito-assembler=subjects:own")
    assert result.returncode == 4, result.stdout + result.stderr
    assert "need hypothesis: pip install 't1-tito[testing]'" in result.stderr


@pytest.fixture(scope="module")
def tiny():
    """The tiny tokenizer; what loads it is not imported again by runs in this process."""
    return load_chat(TINY_FOLDER)


def test_a_tokenizer_and_template_are_tried(tiny, inner):
    result = inner(
        f"--tito-tokenizer={TINY_FOLDER}", "--tito-examples=2", "-v", "-k", "seam or once"
    )
    result.assert_outcomes(passed=2, deselected=19)
    result.stdout.fnmatch_lines(["*tokenizer?seam? PASSED*", "*assembler?once? PASSED*"])


@pytest.mark.parametrize("name", CHAT_CHECKS)
def test_the_tiny_tokenizer_holds_what_sessions_need(tiny, name):
    check_chat(tiny, name, examples=10)


def test_a_template_that_forgets_is_found(tmp_path):
    template = tmp_path / "forgetful.jinja"
    template.write_text(
        "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
        "{%- if loop.last %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
        "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    with pytest.raises(FidelityError) as caught:
        check_chat(load_chat(TINY_FOLDER, template), "template")
    assert caught.value.invariant == "template"


def test_a_tokenizer_without_a_template_is_named_with_the_option_that_gives_one(tmp_path, inner):
    copied = tmp_path / "tokenizer.json"
    copied.write_bytes((TINY_FOLDER / "tokenizer.json").read_bytes())
    result = inner(f"--tito-tokenizer={copied}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no chat template beside tokenizer.json; *--tito-template*"])


class Engine(BaseHTTPRequestHandler):
    """A server over loopback that samples 5, 6, 7 and stops on 7; `fault` says what it gets wrong."""

    fault = ""
    speaks = "sglang"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/generate" and self.speaks == "sglang":
            self.answer(self.sglang(body["input_ids"]))
        elif self.path == "/v1/completions" and self.speaks == "openai":
            assert body["model"] == "m"
            self.answer(self.openai(body["prompt"]))
        elif self.speaks == "nonsense":
            self.answer(["no object"])
        elif self.speaks == "failing":
            self.send_error(500, "out of memory")
        else:
            self.send_error(404)

    def do_GET(self):
        self.answer({"data": [{"id": "m"}]})

    def sampled(self, prompt):
        prompt, ids, logprobs = list(prompt), [5, 6, 7], [-0.5, -1.0, -0.25]
        if self.fault == "echo":
            prompt[-1] += 1
        if self.fault == "echo_short":
            prompt.pop()
        if self.fault == "stop":
            ids, logprobs = ids[:-1], logprobs[:-1]
        if self.fault == "ids":
            ids.pop(0)
        if self.fault == "logprobs":
            logprobs.pop()
        if self.fault == "nan":
            logprobs[1] = float("nan")
        return prompt, ids, logprobs

    def sglang(self, given):
        prompt, ids, logprobs = self.sampled(given)
        return {
            "output_ids": ids,
            "meta_info": {
                "input_token_logprobs": [[None, token, None] for token in prompt],
                "output_token_logprobs": [[lp, 0, None] for lp in logprobs],
                "completion_tokens": 2 if self.fault == "stop" else 3,
                "finish_reason": {"type": "stop", "matched": 7},
            },
        }

    def openai(self, given):
        prompt, ids, logprobs = self.sampled(given)
        return {
            "choices": [
                {
                    "prompt_token_ids": prompt,
                    "token_ids": ids,
                    "logprobs": {"token_logprobs": logprobs},
                    "finish_reason": "stop",
                    "stop_reason": 7,
                }
            ],
            "usage": {"completion_tokens": 2 if self.fault == "stop" else 3},
        }

    def answer(self, content):
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def engine(request):
    handler = type("Handler", (Engine,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    handler.url = f"http://127.0.0.1:{server.server_port}"
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("speaks", ["sglang", "openai"])
def test_an_honest_engine_passes_every_check(engine, speaks):
    engine.speaks = speaks
    probe = EngineProbe(engine.url)
    for name in PROBE_CHECKS:
        probe.check(name)


@pytest.mark.parametrize("speaks", ["sglang", "openai"])
@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("echo", "echo"),
        ("echo_short", "echo"),
        ("stop", "stop"),
        ("ids", "ids"),
        ("logprobs", "logprobs"),
        ("nan", "logprobs"),
    ],
)
def test_an_engine_that_loses_something_is_found(engine, speaks, fault, check):
    engine.speaks, engine.fault = speaks, fault
    with pytest.raises(FidelityError) as caught:
        EngineProbe(engine.url).check(check)
    assert caught.value.invariant == check


@pytest.mark.parametrize(
    ("speaks", "message"),
    [
        ("nothing", "neither /generate nor /v1/completions"),
        ("nonsense", "answered list"),
        ("failing", "answered 500"),
    ],
)
def test_a_server_of_another_kind_is_named(engine, speaks, message):
    engine.speaks = speaks
    with pytest.raises(EngineError, match=message):
        EngineProbe(engine.url).check("echo")


def test_an_engine_is_probed_by_the_plugin(engine, inner):
    engine.fault = "echo"
    result = inner(f"--tito-engine={engine.url}")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*echo broken at position 0: 100 was sent, 101 is reported*"])
