"""Writes mixed.safetensors and events.tfrecord: pip install safetensors==0.8.0 tensorboard==2.21.0 numpy; python make_golden.py."""
import pathlib

import numpy as np
from safetensors.numpy import save_file
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

here = pathlib.Path(__file__).parent
save_file(
    {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5,
        "half": np.array([1.0, -0.5, 65504.0, 6e-8, np.inf], dtype=np.float16),
        "double": np.array(0.1, dtype=np.float64),
        "long": np.array([[-1], [2**40]], dtype=np.int64),
        "bytes": np.array([1, 2, 255], dtype=np.uint8),
        "empty": np.zeros((0, 4), dtype=np.float32),
    },
    here / "mixed.safetensors",
    metadata={"model": "srresnet", "note": 'quote " and \u00fc'},
)
with open(here / "events.tfrecord", "wb") as file:
    writer = RecordWriter(file)
    for event in (
        Event(wall_time=1.5, file_version="brain.Event:2"),
        Event(wall_time=2.5, step=7, summary=Summary(value=[Summary.Value(tag="train/loss", simple_value=0.5)])),
        Event(
            wall_time=3.5,
            step=300,
            summary=Summary(value=[Summary.Value(tag="sample", image=Summary.Image(
                height=2, width=3, colorspace=3, encoded_image_string=b"not really a PNG"))]),
        ),
    ):
        writer.write(event.SerializeToString(deterministic=True))
