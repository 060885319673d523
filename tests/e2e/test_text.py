"""The text channel and the wire under hostile content: what was said arrives, character for character."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import playhead
from playhead.core.ids import run_feed
from playhead.errors import InvalidState
from tests.support.stage import STORES, Gates, stage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", STORES)]

SEPARATORS = "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg"
PIECES = [
    "l1\nl2\r\nl3\rl4\n\n",
    " leading space",
    ":colon",
    "",
    "data: x",
    SEPARATORS,
    "nul\0nul",
    "\\u0000",
    "你好🙂é",
    "x\r\n\r\nevent: run_succeeded\r\ndata: {}",
]


def talking(gates: Gates) -> Sequence[playhead.Agent]:
    @playhead.agent
    async def tokens(run: playhead.RunContext, n: int = 120) -> str:
        said = ""
        for i in range(n):
            await gates.wait(f"token-{i}") if i in (0, 1, 59, 60, 119) else None
            piece = f"<{i}>"
            said += piece
            await run.text(piece)
        await run.flush()
        await gates.wait("said")
        return said

    @playhead.agent
    async def verbatim(run: playhead.RunContext) -> list[str]:
        for piece in PIECES:
            await run.text(piece)
            await run.event("said", {"text": piece})
        await run.flush()
        await gates.wait("said")
        return PIECES

    @playhead.agent
    async def halves(run: playhead.RunContext) -> str:
        await run.text("lone \ud83d end ")
        await run.text("\ud83d")
        await run.text("\ude42")
        await run.text(" after")
        await run.event("said", {"text": "lone \udc00"})
        await run.flush()
        await gates.wait("said")
        return "ok \ud800"

    @playhead.agent
    async def chatty(run: playhead.RunContext, n: int = 10) -> None:
        for i in range(n):
            await run.text(f"{i} ")
            await asyncio.sleep(0)

    return [tokens, verbatim, halves, chatty]


@pytest.mark.store
@pytest.mark.row("BR-12", "M-reload", "M-join-race", "R11")
async def test_joining_at_any_token_gives_the_whole_text(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, talking) as s:
        run_id = await s.client.start("tokens")
        streams = []
        for gate in ("token-0", "token-1", "token-59", "token-60", "token-119", "said"):
            await s.gates.reached(gate)
            streams.append(await s.client.open(run_id))
            s.gates.open(gate) if gate != "said" else None
        whole = "".join(f"<{i}>" for i in range(120))
        for stream in streams:
            await stream.until(lambda one: one.text() == whole)
        shown = await s.client.bootstrap(run_id)
        assert [(part["part"], part["text"]) for part in shown["text"]] == [("answer", whole)]
        s.gates.open("said")
        for stream in streams:
            await stream.end()
            assert stream.text() == whole
            await stream.close()


@pytest.mark.store
@pytest.mark.row("BR-56", "BR-58", "BR-60", "BR-57", "A27")
async def test_every_character_arrives(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, talking) as s:
        run_id = await s.client.start("verbatim")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("said")
            await stream.until(lambda one: one.text() == "".join(PIECES))
            s.gates.open("said")
            await stream.end()
        assert [event["payload"]["text"] for event in stream.events if event["type"] == "said"] == PIECES
        # As many frames as events, and no other: nothing that was said has become one.
        assert stream.types == [
            "run_queued",
            "run_started",
            "attempt_started",
            *["said"] * len(PIECES),
            "run_succeeded",
        ]
        assert {frame.event for frame in stream.frames} == {"message", "state", "text", "end"}
        # A client that splits lines as Python does recovers the same, from events and from text.
        said, told = [], ""
        for line in stream.raw.decode().splitlines():
            if line.startswith("data:"):
                data = json.loads(line[5:])
                if data.get("type") == "said":
                    said.append(data["payload"]["text"])
                elif "offset" in data:
                    told = data["text"] if data["offset"] == 0 else told + data["text"]
        assert said == PIECES
        assert told == "".join(PIECES)
        assert (await s.client.run(run_id))["result"] == PIECES
        shown = await s.client.bootstrap(run_id)
        assert [event["payload"]["text"] for event in shown["events"] if event["type"] == "said"] == PIECES


@pytest.mark.row("BR-61", "BR-60")
async def test_half_characters_break_nothing(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path, talking) as s:
        run_id = await s.client.start("halves")
        async with s.client.stream(run_id) as stream:
            await s.gates.reached("said")
            await stream.until(lambda one: one.text().endswith("after"))
            s.gates.open("said")
            await stream.end()
        assert stream.text() == "lone \ufffd end 🙂 after"
        assert [event["payload"] for event in stream.events if event["type"] == "said"] == [{"text": "lone \ufffd"}]
        assert stream.raw.decode()  # valid UTF-8 to its last byte
        assert (await s.client.run(run_id))["result"] == "ok \ufffd"


@pytest.mark.row("H-text-cost", "R11", "R15")
async def test_text_costs_the_record_nothing(backend: str, tmp_path: Path) -> None:
    # A window longer than the test: what is sent is decided by sizes and not by how fast this machine is.
    async with stage(backend, tmp_path, talking, settings={"text_flush": 30.0}) as s:
        appends: list[tuple[int, int]] = []
        append = s.engine.ports.texts.append

        async def weighed(write: Any) -> Any:
            appends.append((write.offset, len(write.data)))
            return await append(write)

        s.engine.ports.texts.append = weighed
        record, acts = s.engine.ports.record, []
        for name in ("create", "acquire", "finish", "append", "note", "ask"):
            act = getattr(record, name)

            def counted(*args: Any, _act: Any = act, _name: str = name, **options: Any) -> Any:
                if _name != "acquire" and not (_name == "append" and not args[1]):
                    acts.append(_name)
                return _act(*args, **options)

            setattr(record, name, counted)
        costs = []
        for n in (10, 10_000):
            acts.clear()
            appends.clear()
            run_id = await s.client.start("chatty", {"n": n})
            async with s.client.stream(run_id) as stream:
                await stream.end()
            await s.client.ended(run_id)
            # The text channel: each byte is written once, and far fewer writes than tokens; a viewer gets each once.
            whole = "".join(f"{i} " for i in range(n)).encode()
            assert sum(size for _, size in appends) == len(whole)
            assert len(appends) <= 8 + len(whole) / 2_048
            assert len({offset for offset, size in appends if size}) == len([1 for _, size in appends if size])
            said = [frame for frame in stream.frames if frame.event == "text"]
            assert sum(len(frame.data["text"].encode()) for frame in said) == len(whole)
            assert len(stream.raw) < len(whole) + 200 * len(said) + 6_000
            await s.archived(run_id)
            archived = await s.engine.ports.archive.read(run_feed(run_id), None, 100)
            costs.append(
                (sorted(set(acts)), acts.count("create"), acts.count("finish"), acts.count("note"), len(archived))
            )
        assert costs[0] == costs[1]


@pytest.mark.row("BR-62", "A27")
async def test_not_a_number_is_null_everywhere(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def numbers(run: playhead.RunContext) -> Any:
            value = {"nan": float("nan"), "deep": [{"inf": float("inf")}, -float("inf")]}
            await run.event("measured", value)
            with pytest.raises(InvalidState, match="progress"):
                await run.event("measured", {}, progress=float("nan"))
            return value

        return [numbers]

    def strict(text: bytes | str) -> Any:
        return json.loads(text, parse_constant=lambda name: pytest.fail(name))

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("numbers")
        async with s.client.stream(run_id) as stream:
            await stream.end()
        clean = {"nan": None, "deep": [{"inf": None}, None]}
        assert [e["payload"] for e in stream.events if e["type"] == "measured"] == [clean]
        assert strict((await s.client.get(f"/runs/{run_id}")).body)["result"] == clean
        for line in bytes(stream.raw).split(b"\n"):
            assert not line.startswith(b"data:") or strict(line[5:]) is not None
        assert strict((await s.client.get(f"/runs/{run_id}/bootstrap")).body)["snapshot"]["progress"] is None
        record = await s.engine.ports.record.get("local", run_id)
        view = await s.engine.ports.live.read(run_feed(run_id))
        for stored in (record.result, record.state, view.snapshot.state, *(entry.data for entry in view.entries)):
            assert strict(stored) is not None


@pytest.mark.row("BR-63", "R17", "M-oversized")
@pytest.mark.parametrize("char", ['"', "你"])
async def test_a_huge_output_is_cut_and_says_so(backend: str, tmp_path: Path, char: str) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def huge(run: playhead.RunContext) -> int:
            await run.event("tool_executed", {"call_id": "c", "output": char * (5_000_000 // len(char.encode()))})
            return 1

        return [huge]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("huge")
        async with s.client.stream(run_id) as stream:
            await stream.end()
        assert max(map(len, bytes(stream.raw).split(b"\n"))) <= 257 * 1024
        [cut] = [event["payload"] for event in stream.events if event["type"] == "tool_executed"]
        assert cut["truncated"] is True
        assert cut["truncated_fields"]["output"]["original_bytes"] > 5_000_000 - 10
        assert cut["output"].strip(char) == ""
        assert stream.types[-1] == "run_succeeded"
        async with s.client.stream(run_id) as again:
            await again.end()
        assert again.events == stream.events
        assert len((await s.client.get(f"/runs/{run_id}/bootstrap")).body) < 1 << 20


@pytest.mark.row("BR-64", "BR-57", "R13")
async def test_reserved_and_hostile_types_are_refused(backend: str, tmp_path: Path) -> None:
    hostile = ["error", "open", "message", "end", "state", "resync_required", "run_succeeded", "attempt_started"]
    hostile += ["a\nb", "a\rb", "a\0b", "a\u2028b", "Two Words", "", "x" * 65, "run succeeded"]

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def liar(run: playhead.RunContext) -> list[str]:
            codes = []
            for name in hostile:
                try:
                    await run.event(name, {"x": 1}, progress=99)
                except playhead.PlayheadError as error:
                    codes.append(error.code)
            await run.event("told_the_truth")
            return codes

        return [liar]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("liar")
        async with s.client.stream(run_id) as stream:
            await stream.end()
        assert (await s.client.run(run_id))["result"] == ["invalid_event_type"] * len(hostile)
        assert stream.types == ["run_queued", "run_started", "attempt_started", "told_the_truth", "run_succeeded"]
        assert stream.snapshot["progress"] is None
        assert {frame.event for frame in stream.frames} <= {"message", "state", "text", "end"}


@pytest.mark.row("BR-82", "R16", "S1-12")
async def test_secrets_reach_no_store_and_no_stream(
    backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def leaky(run: playhead.RunContext) -> dict[str, str]:
            secret = {"api_key": "sk-TEST123", "header": "Bearer TEST456"}
            await run.event("tool_call_started", {"call_id": "1", "arguments": secret}, detail=secret["header"])
            for piece in ("Authorization: Bea", "rer TES", "T456 and more"):
                await run.text(piece)
            await run.audit("called", secret)
            raise RuntimeError(f"refused: {secret}")

        return [leaky]

    caplog.set_level(logging.DEBUG)
    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("leaky")
        async with s.client.stream(run_id) as stream:
            await stream.end()
        run = await s.client.get(f"/runs/{run_id}")
        audit = await s.engine.ports.record.audit("local", run_id)
        seen = bytes(stream.raw) + run.body + (await s.client.get(f"/runs/{run_id}/bootstrap")).body
        seen += b"".join(entry.data for entry in audit) + caplog.text.encode()
    if backend == "sqlite":
        seen += b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"TEST123" not in seen
    assert b"TEST456" not in seen
    assert [entry.kind for entry in audit] == ["called"]
    # Where it failed is logged all the same.
    assert "in leaky" in caplog.text
    assert "refused: " in caplog.text
    assert seen.count(b"[redacted]") > 5


@pytest.mark.row("BR-60")
async def test_a_nul_anywhere_is_kept_and_stops_nothing(backend: str, tmp_path: Path) -> None:
    nul, spelt = "a\0b", "a\\u0000b"

    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def odd(run: playhead.RunContext, words: str = "", fails: bool = False) -> dict[str, str]:
            await run.event("tool_executed", {"call_id": "1", "output": words}, detail=words, current_step=words)
            await run.text(words)
            await run.ask({"title": words})
            if fails:
                raise ValueError(words)
            return {"words": words}

        return [odd]

    async with stage(backend, tmp_path, agents) as s:
        for words in (nul, spelt):
            for fails in (False, True):
                run_id = await s.client.start("odd", {"words": words, "fails": fails})
                async with s.client.stream(run_id) as stream:
                    await stream.until(lambda one: "approval_required" in one.types and bool(one.named("text")))
                    shown = await s.client.bootstrap(run_id)
                    assert shown["run"]["input"]["words"] == words
                    assert (shown["snapshot"]["detail"], shown["snapshot"]["current_step"]) == (words, words)
                    [question] = shown["interrupts"]
                    assert question["payload"] == {"title": words}
                    path = f"/runs/{run_id}/interrupts/{question['id']}/decision"
                    answer = await s.client.post(path, {"approved": True, "note": words})
                    assert (answer.status, answer.json()["decision"]["note"]) == (200, words)
                    await stream.end()
                assert stream.text() == words
                outputs = [e["payload"]["output"] for e in stream.events if e["type"] == "tool_executed"]
                assert outputs == [words]
                assert b"\0" not in stream.raw
                run = await s.client.run(run_id)
                if fails:
                    assert (run["status"], run["error"]["message"]) == ("failed", f"ValueError: {words}")
                    assert stream.events[-1]["payload"]["message"] == f"ValueError: {words}"
                    assert run["partial"] == [{"part": "answer", "text": words}]
                else:
                    assert (run["status"], run["result"]) == ("succeeded", {"words": words})
                await s.archived(run_id)
                archived = await s.engine.ports.archive.read(run_feed(run_id), None, 50)
                bodies = [json.loads(event.body) for event, _ in archived]
                assert [one["payload"]["output"] for one in bodies if one["type"] == "tool_executed"] == [words]


@pytest.mark.row("BR-12")
async def test_a_client_that_knows_nothing_sees_a_running_run_whole(backend: str, tmp_path: Path) -> None:
    def agents(gates: Gates) -> Sequence[playhead.Agent]:
        @playhead.agent
        async def worker(run: playhead.RunContext) -> None:
            for i in (1, 2, 3):
                await run.event("counted", {"i": i}, progress=40, current_step="the third")
            for i in range(120):
                await run.text(f"<{i}>")
            await run.flush()
            await gates.wait("end")

        return [worker]

    async with stage(backend, tmp_path, agents) as s:
        run_id = await s.client.start("worker")
        await s.gates.reached("end")
        shown = await s.client.bootstrap(run_id)
        assert (shown["run"]["status"], shown["snapshot"]["status"]) == ("running", "running")
        assert (shown["snapshot"]["current_step"], shown["snapshot"]["progress"]) == ("the third", 40)
        assert [event["payload"].get("i") for event in shown["events"]][-3:] == [1, 2, 3]
        assert [part["text"] for part in shown["text"]] == ["".join(f"<{i}>" for i in range(120))]
        assert shown["timeline"]["complete"] is True
        async with s.client.stream(run_id) as stream:
            await stream.type("counted", 3)
            assert stream.cursor == shown["cursor"]
