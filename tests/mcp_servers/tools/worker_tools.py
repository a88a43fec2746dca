"""Tools that the workers' tests run: they count, wait, crash and eat memory."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from PIL import Image
from pydantic import BaseModel

from mcp_servers.context import ToolContext
from mcp_servers.spec import InputPath, OutputName, Resources, tool


class Nothing(BaseModel):
    pass


class WaitInput(BaseModel):
    seconds: float
    stubborn: bool = False


class WaitResult(BaseModel):
    pid: int
    started: float
    ended: float


@tool("wait", "test", "1", "Wait, reporting progress.", Resources(memory_mb=64), cacheable=False)
def wait(given: WaitInput, context: ToolContext) -> WaitResult:
    started = time.time()
    while time.time() - started < given.seconds:
        time.sleep(0.05)
        if not given.stubborn:
            context.progress((time.time() - started) / given.seconds, "waiting")
    return WaitResult(pid=os.getpid(), started=started, ended=time.time())


@tool("heavy_wait", "test", "1", "Wait, on a large node.", Resources(memory_mb=2048))
def heavy_wait(given: WaitInput, context: ToolContext) -> WaitResult:
    return wait(given, context)


class CrashInput(BaseModel):
    marker: str
    times: int = 1


class CrashResult(BaseModel):
    attempts: int
    file: OutputName


@tool("crash", "test", "1", "Die by a signal the first times.", Resources(memory_mb=64))
def crash(given: CrashInput, context: ToolContext) -> CrashResult:
    log = context.output(given.marker)
    with log.open("a") as stream:
        stream.write("x")
    attempts = len(log.read_text())
    with context.writing("half.txt") as path:
        path.write_text("half")
        if attempts <= given.times:
            os.kill(os.getpid(), signal.SIGKILL)
    return CrashResult(attempts=attempts, file="half.txt")


class EatInput(BaseModel):
    megabytes: int


@tool("eat", "test", "1", "Use memory.", Resources(memory_mb=64), cacheable=False)
def eat(given: EatInput, context: ToolContext) -> Nothing:
    held = [bytes([1]) * (1 << 20) for _ in range(given.megabytes)]
    for _ in range(40):
        time.sleep(0.05)
        context.check_cancelled()
    assert held
    return Nothing()


@tool("gorge", "test", "1", "Wants more than there is.", Resources(memory_mb=1 << 30))
def gorge(given: Nothing, context: ToolContext) -> Nothing:
    return given


@tool("needs_gpu", "test", "1", "Needs a card.", Resources(gpu="required"))
def needs_gpu(given: Nothing, context: ToolContext) -> WaitResult:
    return WaitResult(pid=int(context.device.removeprefix("cuda:")), started=0, ended=0)


class DeviceInput(BaseModel):
    seconds: float
    device: str = "auto"


@tool(
    "on_device",
    "test",
    "1",
    "Uses a card.",
    Resources(memory_mb=64, gpu="required"),
    cacheable=False,
)
def on_device(given: DeviceInput, context: ToolContext) -> WaitResult:
    started = time.time()
    time.sleep(given.seconds)
    return WaitResult(pid=os.getpid(), started=started, ended=time.time())


class ImageInput(BaseModel):
    slide: InputPath


class ImageResult(BaseModel):
    image: OutputName
    width: int
    opened: int


@tool("preview", "test", "1", "A small picture of an image.", Resources(memory_mb=64))
def preview(given: ImageInput, context: ToolContext) -> ImageResult:
    source = context.input(given.slide, "file")
    opened: list[Path] = context.share_handle("opened", list)
    opened.append(source)
    with Image.open(source) as image:
        small = image.convert("RGB")
        small.thumbnail((64, 64))
    name = f"{source.stem}.png"
    with context.writing(name) as path:
        small.save(path)
    return ImageResult(image=name, width=small.width, opened=len(opened))


@tool("slow_preview", "test", "1", "The same, slower.", Resources(memory_mb=64))
def slow_preview(given: ImageInput, context: ToolContext) -> ImageResult:
    for _ in range(6):
        time.sleep(0.05)
        context.check_cancelled()
    return preview(given, context)
