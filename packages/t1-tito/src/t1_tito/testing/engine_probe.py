"""The engine probe: does an inference server take ids, and give back all that it sampled?

    echo       the prompt ids that the server reports are those it was sent
    ids        as many ids come back as it says it sampled
    stop       an answer that stopped ends in the id that stopped it
    logprobs   every sampled id has one finite log-probability

It speaks to SGLang's native endpoint (/generate) and to OpenAI's (/v1/completions) as vLLM extends it
with `return_token_ids`. It sends a few short prompts of the ids 100, 101, ... and changes nothing.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from t1_tito.errors import FidelityError, TitoError

PROBE_CHECKS = ("echo", "ids", "stop", "logprobs")
"""What `EngineProbe.check` knows."""

_PROMPTS = ([100], [100, 101, 102], list(range(100, 132)))
_NEW_TOKENS = 8


class EngineError(TitoError, ConnectionError):
    """A server cannot be reached or does not speak a known protocol."""


@dataclass(frozen=True)
class EngineReply:
    """What a server said of one request; None where it said nothing.

    Attributes:
        prompt_ids: the prompt ids that it reports.
        completion_ids: the ids that it sampled.
        logprobs: one per sampled id.
        completion_tokens: how many it says it sampled.
        finish_reason: why it stopped, as it says it.
        stop_id: the id that it says stopped it.
    """

    prompt_ids: list[int] | None
    completion_ids: list[int] | None
    logprobs: list[float | None] | None
    completion_tokens: int | None
    finish_reason: str
    stop_id: int | None


class EngineProbe:
    """Asks one server.

    Args:
        url: where it listens, without a path.
        prompts: prompts to send; ids of its vocabulary.
        timeout: seconds to wait for one answer.
    """

    def __init__(
        self, url: str, *, prompts: Sequence[Sequence[int]] = _PROMPTS, timeout: float = 60.0
    ) -> None:
        self._url = url.rstrip("/")
        self._prompts = [list(prompt) for prompt in prompts]
        self._timeout = timeout
        # an engine is reached directly, whatever proxy the environment names
        self._opener = build_opener(ProxyHandler({}))
        self._replies: list[EngineReply] | None = None
        if not self._url.startswith(("http://", "https://")):
            raise EngineError(f"expected a URL with http:// or https://, got {url!r}")

    def check(self, name: str) -> None:
        """Check one property of every answer.

        Raises:
            FidelityError: the property is broken; the position counts in the field concerned.
            EngineError: the server cannot be reached or does not speak a known protocol.
            KeyError: there is no such check.
        """
        check = {
            "echo": _check_echo,
            "ids": _check_ids,
            "stop": _check_stop,
            "logprobs": _check_logprobs,
        }[name]
        if self._replies is None:
            self._replies = [self._ask(prompt) for prompt in self._prompts]
        for prompt, reply in zip(self._prompts, self._replies, strict=True):
            check(prompt, reply)

    def _ask(self, prompt: list[int]) -> EngineReply:
        native = self._post(
            "/generate",
            {
                "input_ids": prompt,
                "sampling_params": {"max_new_tokens": _NEW_TOKENS, "temperature": 1.0},
                "return_logprob": True,
                "logprob_start_len": 0,
            },
        )
        if native is not None:
            return _sglang_reply(native)
        openai = self._post(
            "/v1/completions",
            {
                "model": self._model(),
                "prompt": prompt,
                "max_tokens": _NEW_TOKENS,
                "temperature": 1.0,
                "logprobs": 1,
                "return_token_ids": True,
            },
        )
        if openai is None:
            raise EngineError(f"{self._url} has neither /generate nor /v1/completions")
        return _openai_reply(openai)

    def _model(self) -> str:
        listed = self._request(Request(self._url + "/v1/models"))  # noqa: S310 http(s) only
        models = (listed or {}).get("data") or []
        return str(models[0]["id"]) if models else "default"

    def _post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self._request(
            Request(  # noqa: S310 http(s) only
                self._url + path,
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
        )

    def _request(self, request: Request) -> Mapping[str, Any] | None:
        """The answer; None where there is no such path."""
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                content = json.load(answer)
        except HTTPError as error:
            if error.code in {404, 405}:
                return None
            text = error.read(300).decode(errors="replace")
            raise EngineError(f"{request.full_url} answered {error.code}: {text}") from error
        except (URLError, OSError, ValueError) as error:
            raise EngineError(f"{request.full_url}: {error}") from error
        if not isinstance(content, dict):
            raise EngineError(f"{request.full_url} answered {type(content).__name__}, no object")
        return content


def _sglang_reply(answer: Mapping[str, Any]) -> EngineReply:
    meta = answer.get("meta_info") or {}
    reason = meta.get("finish_reason") or {}
    triples = meta.get("output_token_logprobs")
    echoed = meta.get("input_token_logprobs")
    matched = reason.get("matched")
    ids = answer.get("output_ids")
    if ids is None and triples is not None:
        ids = [triple[1] for triple in triples]
    return EngineReply(
        prompt_ids=None if echoed is None else [triple[1] for triple in echoed],
        completion_ids=ids,
        logprobs=None if triples is None else [triple[0] for triple in triples],
        completion_tokens=meta.get("completion_tokens"),
        finish_reason=str(reason.get("type")),
        stop_id=matched if isinstance(matched, int) else None,
    )


def _openai_reply(answer: Mapping[str, Any]) -> EngineReply:
    choice = (answer.get("choices") or [{}])[0]
    stop = choice.get("stop_reason")
    return EngineReply(
        prompt_ids=choice.get("prompt_token_ids", answer.get("prompt_token_ids")),
        completion_ids=choice.get("token_ids"),
        logprobs=(choice.get("logprobs") or {}).get("token_logprobs"),
        completion_tokens=(answer.get("usage") or {}).get("completion_tokens"),
        finish_reason=str(choice.get("finish_reason")),
        stop_id=stop if isinstance(stop, int) else None,
    )


def _check_echo(prompt: list[int], reply: EngineReply) -> None:
    if reply.prompt_ids is None:
        raise FidelityError("echo", None, None, "the server does not report the prompt ids")
    for j, (sent, said) in enumerate(zip(prompt, reply.prompt_ids, strict=False)):
        if sent != said:
            raise FidelityError("echo", None, j, f"{sent} was sent, {said} is reported")
    if len(prompt) != len(reply.prompt_ids):
        raise FidelityError(
            "echo", None, None, f"{len(prompt)} ids were sent, {len(reply.prompt_ids)} are reported"
        )


def _check_ids(prompt: list[int], reply: EngineReply) -> None:
    if reply.completion_ids is None:
        raise FidelityError("ids", None, None, "the server does not report the sampled ids")
    if reply.completion_tokens is None:
        raise FidelityError("ids", None, None, "the server does not say how many ids it sampled")
    if len(reply.completion_ids) != reply.completion_tokens:
        raise FidelityError(
            "ids",
            None,
            None,
            f"{reply.completion_tokens} were sampled, {len(reply.completion_ids)} are reported",
        )


def _check_stop(prompt: list[int], reply: EngineReply) -> None:
    if reply.finish_reason != "stop" or reply.stop_id is None:
        return
    ids = reply.completion_ids or []
    if not ids or ids[-1] != reply.stop_id:
        raise FidelityError(
            "stop",
            None,
            len(ids) - 1 if ids else None,
            f"id {reply.stop_id} stopped it and is missing",
        )


def _check_logprobs(prompt: list[int], reply: EngineReply) -> None:
    count = len(reply.completion_ids or [])
    if reply.logprobs is None or len(reply.logprobs) != count:
        given = "none" if reply.logprobs is None else str(len(reply.logprobs))
        raise FidelityError("logprobs", None, None, f"{count} ids were sampled, with {given}")
    for j, value in enumerate(reply.logprobs):
        if value is None or not math.isfinite(value) or value > 0:
            raise FidelityError("logprobs", None, j, f"{value!r} is no log-probability")
