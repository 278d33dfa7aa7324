"""Hashes of files, rows and predictions."""

from hashlib import sha256
from pathlib import Path

import numpy as np
import torch

from fairfox.data.dataset import Dataset
from fairfox.data.hashes import file_sha256, rows_sha256, tensors_sha256


def test_a_file_has_the_hash_of_its_bytes(tmp_path: Path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"abc")
    assert file_sha256(path) == sha256(b"abc").hexdigest()


def test_what_is_no_file_has_no_hash(tmp_path: Path):
    assert file_sha256(tmp_path) is None
    assert file_sha256("package.module:function") is None
    assert file_sha256("https://example.org/v2/models/x/infer") is None


def test_rows_have_the_hash_of_their_numbers_in_order():
    data = Dataset.from_arrays(torch.tensor([[1.0], [2.0]]), [0, 1])
    by_hand = sha256(np.float32([1.0, 2.0]).tobytes() + data.c.numpy().tobytes()).hexdigest()
    assert rows_sha256(data) == by_hand
    assert rows_sha256(Dataset.from_arrays(torch.tensor([[2.0], [1.0]]), [0, 1])) != by_hand


def test_a_tensor_that_is_a_view_has_the_hash_of_what_it_shows():
    whole = torch.arange(6.0).reshape(2, 3)
    assert tensors_sha256(whole.T) == tensors_sha256(whole.T.clone())
    assert tensors_sha256(whole.T) != tensors_sha256(whole)
