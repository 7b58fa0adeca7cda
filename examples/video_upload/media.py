"""Video work with PyAV and Pillow. Knows nothing of workflows: files in, files and facts out, one frame in memory."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

import av
import av.filter
from PIL import Image

# Only containers that hold their own data: a playlist could name files and addresses of this machine's network.
_OPEN = {"format_whitelist": "mov,mp4,matroska,webm,avi,mpegts,flv,ogg", "protocol_whitelist": "none"}
_COPIED_AUDIO = ("aac", "mp3")
_TURNS = {-90: [("transpose", "clock")], 90: [("transpose", "cclock")], 180: [("hflip", ""), ("vflip", "")]}
MAX_PIXELS = 8192 * 4352
LOST_SECONDS = 0.5


class BadVideo(Exception):
    """A file that no retry will mend; the message is for people."""


@dataclass(frozen=True)
class Facts:
    """What a file holds. ``audio_codec`` is ``None`` for a silent one; ``seconds`` is its playing time."""

    seconds: float
    width: int
    height: int
    frames_per_second: float
    video_codec: str
    audio_codec: str | None


class _Source:
    """A file as FFmpeg reads it. A broken one sends it to places before the start: it is told so, as in C."""

    def __init__(self, file: IO[bytes]) -> None:
        self.read, self.tell, self._seek = file.read, file.tell, file.seek

    def seek(self, offset: int, whence: int = 0) -> int:
        """The new position, or a negative error number."""
        try:
            return self._seek(offset, whence)
        except ValueError:
            return -errno.EINVAL
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return -errno.EINVAL


@contextmanager
def _opened(file: IO[bytes]) -> Iterator[Any]:
    """An open container; FFmpeg's complaints become :class:`BadVideo`, the storage's own errors stay what they are."""
    try:
        with av.open(_Source(file), "r", options=_OPEN) as container:
            yield container
    except av.FFmpegError as error:
        raise BadVideo(f"this is not a video that can be read, or it is cut off: {error.strerror}") from error


def _video(container: Any) -> Any:
    if not container.streams.video:
        kinds = " and ".join(sorted({s.type for s in container.streams}))
        raise BadVideo(f"there is no picture in this file, only {kinds or 'the beginning of one that is cut off'}")
    stream = container.streams.video[0]
    stream.codec_context.thread_count = 1
    return stream


def inspect(file: IO[bytes]) -> Facts:
    """Facts of a video that is there from start to end: every packet is read, the first frame decoded.

    Raises:
        BadVideo: if it cannot be read, has no picture, is too large, or ends before it says it does.
    """
    with _opened(file) as container:
        stream = _video(container)
        width, height = stream.codec_context.width, stream.codec_context.height
        if not 0 < width * height <= MAX_PIXELS:
            raise BadVideo(f"the picture is {width} × {height}; up to 8192 × 4352 can be converted")
        end, start = 0.0, float((stream.start_time or 0) * stream.time_base)
        decoded = False
        for packet in container.demux(stream):
            if packet.pts is not None:
                end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base) - start)
            decoded = decoded or bool(packet.decode())
        if not decoded:
            raise BadVideo("not one picture of this file can be decoded")
        declared = _declared_seconds(container, stream)
        if end < declared * 0.98 - LOST_SECONDS:
            raise BadVideo(f"the file is cut off: it says it lasts {declared:.1f} s and ends after {end:.1f} s")
        audio = container.streams.audio
        rate = stream.average_rate or stream.guessed_rate or 0
        codec = audio[0].codec_context.name if audio else None
        return Facts(round(end, 3), width, height, round(float(rate), 3), stream.codec_context.name, codec)


def _declared_seconds(container: Any, stream: Any) -> float:
    if stream.duration:
        return float(stream.duration * stream.time_base)
    return float(container.duration or 0) / av.time_base


def transcode(source: IO[bytes], target: Path, height: int, on_frame: Callable[[float], None]) -> tuple[int, int]:
    """Writes an MP4 (H.264, and the sound if there is any) of that height to ``target``; answers width and height.

    Args:
        on_frame: called after each frame with the seconds done; may raise to stop. ``target`` is then unfinished.

    Raises:
        BadVideo: where the source cannot be decoded; the message says after how many seconds.
    """
    done = 0.0
    try:
        with (
            av.open(_Source(source), "r", options=_OPEN) as inp,
            av.open(str(target), "w", format="mp4", options={"movflags": "+faststart"}) as out,
        ):
            writer = _Writer(out, _video(inp), inp.streams.audio[0] if inp.streams.audio else None, height)
            for packet in inp.demux([s for s in (writer.picture_in, writer.sound_in) if s is not None]):
                if packet.stream is writer.sound_in:
                    writer.sound(packet)
                    continue
                pictures: list[Any] = packet.decode()
                for frame in pictures:
                    writer.picture(frame)
                    done = max(done, frame.time or 0.0)
                    on_frame(done)
            writer.finish()
            return writer.size
    except av.FFmpegError as error:
        raise BadVideo(f"the video is damaged: it cannot be decoded past {done:.1f} s ({error.strerror})") from error


class _Writer:
    """The output file: one frame goes in, is turned, scaled and encoded before the next one is read."""

    def __init__(self, out: Any, picture_in: Any, sound_in: Any, height: int) -> None:
        self.out, self.picture_in, self.sound_in, self.height = out, picture_in, sound_in, height
        rate = picture_in.average_rate or Fraction(25)
        # Ultrafast with one thread: a preview of every upload, not an archive; it leaves the machine to others. A key
        # frame each two seconds makes the seeks of the thumbnails cheap.
        self.picture_out = out.add_stream("libx264", rate=rate)
        self.picture_out.options = {"preset": "ultrafast", "crf": "26", "threads": "1"}
        self.picture_out.codec_context.gop_size = max(1, round(2 * rate))
        self.picture_out.pix_fmt = "yuv420p"
        self.sound_out: Any = None
        self.copied = sound_in is not None and sound_in.codec_context.name in _COPIED_AUDIO
        if self.copied:
            self.sound_out = out.add_stream_from_template(sound_in)
        elif sound_in is not None:
            self.sound_out = out.add_stream("aac", rate=sound_in.codec_context.sample_rate or 48000)
            self.sound_out.layout = "stereo"
            self.resampler = av.AudioResampler("fltp", "stereo", self.sound_out.rate)
        self.graph: Any = None
        self.held: list[Any] = []
        self.size = (0, 0)

    def picture(self, frame: Any) -> None:
        if self.graph is None:
            self._build(frame.rotation)
        self.graph.push(frame)
        self._drain()

    def sound(self, packet: Any) -> None:
        if self.size == (0, 0):  # the first packet written fixes the size of the picture, so that must be known
            self.held.append(packet)
        elif not self.copied:
            for frame in packet.decode():
                for piece in self.resampler.resample(frame):
                    self.out.mux(self.sound_out.encode(piece))
        elif packet.dts is not None:
            packet.stream = self.sound_out
            self.out.mux(packet)

    def finish(self) -> None:
        if self.graph is None:
            raise BadVideo("not one picture of this file can be decoded")
        self.graph.push(None)
        self._drain()
        self.out.mux(self.picture_out.encode(None))
        if self.sound_out is not None and not self.copied:
            self.out.mux(self.sound_out.encode(None))

    def _build(self, rotation: int) -> None:
        graph = av.filter.Graph()
        graph.threads = 1
        # Phones store pictures lying down with a note to turn them, cameras with oblong pixels: both become plain.
        filters = [
            *_TURNS.get(rotation, []),
            (
                "scale",
                f"w=max(2\\,2*round(iw*if(sar\\,sar\\,1)*{self.height}/ih/2)):h={self.height}:flags=fast_bilinear",
            ),
            ("setsar", "1"),
            ("format", "yuv420p"),
            ("buffersink", ""),
        ]
        nodes = [graph.add_buffer(template=self.picture_in), *(graph.add(name, args) for name, args in filters)]
        graph.link_nodes(*nodes).configure()
        self.graph = graph

    def _drain(self) -> None:
        while True:
            try:
                frame = self.graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            if self.size == (0, 0):
                self.size = self.picture_out.width, self.picture_out.height = frame.width, frame.height
                self.picture_out.codec_context.time_base = frame.time_base
                for packet in self.held:
                    self.sound(packet)
                self.held.clear()
            frame.pict_type = 0  # the encoder chooses key frames; the source's choice would bind it
            self.out.mux(self.picture_out.encode(frame))


def sprite(file: IO[bytes], columns: int = 4, rows: int = 3, width: int = 240) -> tuple[bytes, int, int]:
    """A JPEG of ``columns`` × ``rows`` frames spread over the video; answers it and the size of one frame in pixels.

    Raises:
        BadVideo: if the file cannot be decoded.
    """
    with _opened(file) as container:
        stream = _video(container)
        seconds, count = _declared_seconds(container, stream), columns * rows
        height = max(2, round(width * stream.codec_context.height / stream.codec_context.width))
        sheet = Image.new("RGB", (width * columns, height * rows))
        for index in range(count):
            frame = _frame_at(container, stream, seconds * (index + 0.5) / count)
            small = frame.reformat(width=width, height=height, format="rgb24").to_image()
            sheet.paste(small, (index % columns * width, index // columns * height))
    out = io.BytesIO()
    sheet.save(out, "JPEG", quality=82)
    return out.getvalue(), width, height


def _frame_at(container: Any, stream: Any, second: float) -> Any:
    """The first frame at or after ``second``, or the last one there is."""
    container.seek(int(second / stream.time_base), stream=stream)
    frame = None
    for frame in container.decode(stream):
        if frame.time is not None and frame.time >= second:
            break
    if frame is None:
        raise BadVideo(f"there is no picture at {second:.1f} s")
    return frame
