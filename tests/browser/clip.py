"""A short real video, cut from the example's sample without decoding it."""

from __future__ import annotations

from pathlib import Path

import av

SAMPLE = Path(__file__).resolve().parents[2] / "examples/video_upload/sample/bigbuckbunny.mp4"


def clip(target: Path, seconds: float = 1.0) -> Path:
    """Writes the first ``seconds`` of the sample's picture and sound to ``target``."""
    with av.open(str(SAMPLE)) as source, av.open(str(target), "w") as made:
        streams = {s.index: made.add_stream_from_template(s) for s in source.streams if s.type in ("video", "audio")}
        for packet in source.demux():
            stream = streams.get(packet.stream_index)
            if stream is None or packet.dts is None or packet.dts * packet.time_base >= seconds:
                continue
            packet.stream = stream
            made.mux(packet)
    return target
