"""The example workflow on real video: what it makes, what it refuses, and that twice is as good as once."""

from __future__ import annotations

import io
import json
import tempfile

import av
import pytest
from django.core import mail
from PIL import Image

from examples.video_upload import handlers, media
from examples.video_upload.handlers import READY, RENDITION, SPRITE
from orchestrator.engine.artifacts import ArtifactMissing, artifact_store
from orchestrator.sdk import Cancelled, Fail
from orchestrator.testing import FakeContext

SHARDS = ("1080p", "720p", "480p")
FACTS = {"seconds": 5.28}


def through_transcode(run: FakeContext, shards: tuple[str, ...] = SHARDS) -> None:
    run.done(handlers.probe(run))
    for shard in shards:
        ctx = run.then("transcode", shard)
        ctx.done(handlers.transcode(ctx))


def replace_source(run: FakeContext, data: bytes) -> None:
    artifact_store().put(run.input["source"], data)


def source_of(run: FakeContext) -> bytes:
    with artifact_store().open_key(run.input["source"]) as file:
        return bytes(file.read())


def test_from_upload_to_mail(run: FakeContext) -> None:
    through_transcode(run)
    assert run.outputs["probe"]["video_codec"] == "h264" and run.outputs["probe"]["seconds"] == pytest.approx(5.28)
    for shard in SHARDS:
        made = run.outputs["transcode"][shard]
        assert made["key"] == f"runs/{run.run_id}/transcode/{shard}/{RENDITION}"
        with artifact_store().open_key(made["key"]) as file, av.open(file) as video:
            frames = list(video.decode(video=0))
            assert {(f.width, f.height) for f in frames} == {(made["width"], int(shard[:-1]))} and len(frames) == 132
            assert {s.codec_context.name for s in video.streams} == {"h264", "aac"}

    ctx = run.then("thumbnail")
    ctx.done(handlers.thumbnail(ctx))
    assert run.outputs["thumbnail"]["of"] == "1080p"
    with ctx.artifacts.open(SPRITE) as file:
        assert Image.open(file).size == (4 * 240, 3 * 135)

    ctx = run.then("notify")
    ctx.done(handlers.notify(ctx))
    assert json.loads(ctx.artifacts.open(READY).read())["renditions"].keys() == set(SHARDS)
    [sent] = mail.outbox
    assert sent.to == ["ann@example.com"] and "film-1" in sent.subject and "1080p, 720p, 480p" in str(sent.body)


def test_a_second_attempt_finds_the_rendition_and_a_broken_one_is_made_anew(run: FakeContext) -> None:
    through_transcode(run, ("480p",))
    again = run.then("transcode", "480p", attempt=2)
    assert handlers.transcode(again) == run.outputs["transcode"]["480p"]
    assert again.externals == [] and again.checks == 0, "nothing was encoded"

    with again.artifacts.open(RENDITION) as file:
        half = file.read()[: 10**6]
    again.artifacts.put(RENDITION, half)
    assert handlers.transcode(again) == run.outputs["transcode"]["480p"]
    assert again.externals == ["store rendition"]


def notified(run: FakeContext) -> FakeContext:
    run.outputs |= {"probe": FACTS, "transcode": {"720p": {"key": "k"}}, "thumbnail": {"key": "s"}}
    return run.then("notify")


def test_one_mail_however_often_notify_runs(run: FakeContext) -> None:
    ctx = notified(run)
    assert handlers.notify(ctx) == handlers.notify(run.then("notify", attempt=2))
    assert len(mail.outbox) == 1


def test_a_mail_repeated_after_a_kill_is_known_by_its_message_id(run: FakeContext) -> None:
    ctx = notified(run)
    handlers.notify(ctx)
    ctx.artifacts.delete(handlers.SENT)  # as if the worker had died before it could write this down
    handlers.notify(run.then("notify", attempt=2))
    first, second = (m.message()["Message-ID"] for m in mail.outbox)
    assert first == second and first.endswith("@video-upload.switchyard>")


def test_without_an_address_the_video_is_ready_and_nobody_is_mailed(run: FakeContext) -> None:
    del run.input["email"]
    ctx = notified(run)
    assert handlers.notify(ctx)["mailed"] is False
    assert ctx.artifacts.exists(READY) and mail.outbox == []


def test_a_subject_with_a_line_break_makes_no_second_header(run: FakeContext) -> None:
    ctx = notified(run)
    ctx.subject_id = "film\r\nBcc: eve@example.com"
    handlers.notify(ctx)
    assert mail.outbox[0].message()["Bcc"] is None


def test_undo_leaves_nothing_and_can_be_repeated(run: FakeContext) -> None:
    through_transcode(run, ("480p",))
    run.then("thumbnail").artifacts.put(SPRITE, b"jpeg")
    run.then("notify").artifacts.put(READY, b"{}")
    for released, deleted in ((3 * run.outputs["probe"]["bytes"], 2), (0, 0)):
        handlers.unmark_ready(run.then("unmark_ready"))
        assert handlers.delete_renditions(run.then("delete_renditions")) == {"deleted": deleted}
        assert handlers.release_storage_quota(run.then("release_storage_quota")) == {"released": released}
    assert run.artifacts.list() == []


@pytest.mark.parametrize("broken", ["index gone", "cut after the index", "empty", "text", "playlist", "sound only"])
def test_a_broken_upload_fails_for_good_and_reserves_nothing(run: FakeContext, broken: str) -> None:
    whole = source_of(run)
    data = {
        "index gone": lambda: whole[: len(whole) // 2],
        "cut after the index": lambda: index_first(whole)[: len(whole) // 2],
        "empty": lambda: b"",
        "text": lambda: b"not a video at all " * 100,
        "playlist": lambda: b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n",
        "sound only": lambda: sound_of(whole),
    }[broken]()
    replace_source(run, data)
    said = {"cut after the index": r"says it lasts 5\.3 s and ends after", "sound only": "only audio"}
    with pytest.raises(Fail, match=said.get(broken, "cut off")):
        handlers.probe(run)
    assert run.artifacts.list() == []


def test_damage_in_the_middle_fails_the_shard_and_stores_nothing(run: FakeContext) -> None:
    whole = source_of(run)
    replace_source(run, whole[:500_000] + bytes(200_000) + whole[700_000:])
    run.done(handlers.probe(run))
    with pytest.raises(Fail, match=r"cannot be decoded past \d\.\d s"):
        handlers.transcode(run.then("transcode", "480p"))
    assert run.artifacts.list(step="transcode") == []


def test_a_cancel_stops_between_frames_and_stores_nothing(run: FakeContext) -> None:
    run.outputs["probe"] = FACTS
    ctx = run.then("transcode", "1080p", cancel_after=30)
    with pytest.raises(Cancelled):
        handlers.transcode(ctx)
    assert ctx.checks == 31 and ctx.reports == [(pytest.approx(0.19, abs=0.02), "second 1 of 5")]
    assert run.artifacts.list() == []


@pytest.mark.parametrize(
    "change", [{"source": "runs/other/x"}, {"source": None}, {"source": "uploads/../x"}, {"email": "x"}]
)
def test_bad_input_fails_for_good_and_names_the_field(run: FakeContext, change: dict[str, object]) -> None:
    run.input |= change
    with pytest.raises(Fail, match=next(iter(change))):
        handlers.probe(run)


def test_a_source_that_is_gone_is_a_missing_artifact_not_a_bad_video(run: FakeContext) -> None:
    artifact_store().delete_key(run.input["source"])
    with pytest.raises(ArtifactMissing):
        handlers.probe(run)


@pytest.mark.parametrize("shard", ["", "audio", "0p", "721p", "99999p"])
def test_a_shard_that_is_no_rendition_fails_for_good(run: FakeContext, shard: str) -> None:
    run.outputs["probe"] = FACTS
    with pytest.raises(Fail, match="write an even height"):
        handlers.transcode(run.then("transcode", shard))


def test_a_picture_with_a_note_to_turn_it_comes_out_upright(
    run: FakeContext, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(source_of(run))
    matrix = data.index(b"tkhd") + 44
    data[matrix : matrix + 36] = b"".join(
        n.to_bytes(4, "big", signed=True) for n in (0, 65536, 0, -65536, 0, 0, 720 * 65536, 0, 0x40000000)
    )
    target = tmp_path_factory.mktemp("turned") / "out.mp4"
    assert media.transcode(io.BytesIO(data), target, 480, lambda _: None) == (270, 480)


def index_first(whole: bytes) -> bytes:
    """The same video with its index moved to the front, as web players like it: half of it still opens."""
    return remuxed(whole, ("video", "audio"), {"movflags": "+faststart"})


def sound_of(whole: bytes) -> bytes:
    return remuxed(whole, ("audio",), {})


def remuxed(whole: bytes, kinds: tuple[str, ...], options: dict[str, str]) -> bytes:
    with (
        tempfile.NamedTemporaryFile(suffix=".mp4") as target,
        av.open(io.BytesIO(whole)) as source,
    ):
        out = av.open(target.name, "w", options=options)
        streams = {s: out.add_stream_from_template(s) for s in source.streams if s.type in kinds}
        for packet in source.demux(list(streams)):
            if packet.dts is not None:
                packet.stream = streams[packet.stream]
                out.mux(packet)
        out.close()
        return target.read()
