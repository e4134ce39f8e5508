"""Tests of `coding_judge.py`. Run with `pytest examples/test_coding_judge.py`; they need a sandbox (Linux)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from coding_judge import SPLITS, Coding, make_rubric

from ludus.testing import play


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("split", SPLITS)
def test_the_oracle_passes_every_test(split: str) -> None:
    with play(Coding) as coding:
        assert [coding.oracle(index=index, split=split).components for index in range(2)] == [{"tests": 1.0}] * 2


def test_a_wrong_program_and_no_program_earn_nothing() -> None:
    with play(Coding) as coding:
        episode = coding.start()
        assert episode.write(program="def transform(values):\n    return values\n").error is None
        assert episode.run(code="from solution import transform; print(transform([3]))").text == "[3]\n(exit code 0)"
        episode.submit()
        assert episode.components == {"tests": 0.0}
        empty = coding.start()
        empty.submit()
        assert empty.reward == 0


class JudgeHandler(BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint whose judge finds programs with `sorted` readable."""

    def do_POST(self) -> None:
        """Answer one chat completion."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        case = re.search(r'"case": "(\w+)"', body["messages"][0]["content"])
        assert case is not None
        verdict = {"case": case[1], "reason": "It uses sorted.", "score": int("sorted" in str(body))}
        message = {"role": "assistant", "content": json.dumps(verdict)}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        reply = json.dumps({"model": body["model"], "choices": choices, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def judge_url() -> Iterator[str]:
    """The address of a local judge."""
    with ThreadingHTTPServer(("127.0.0.1", 0), JudgeHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_a_judge_decides_a_fifth_of_the_reward(judge_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_JUDGE_URL", judge_url)

    class Judged(Coding):
        rubric = make_rubric("judge-1")

    with play(Judged) as coding:
        for index in range(4):
            episode = coding.oracle(index=index)
            readable = "sort in ascending order" in episode.task.steps
            assert episode.components == {"tests": 1.0, "readable": float(readable)}
            assert episode.reward == pytest.approx(1.0 if readable else 0.8)
