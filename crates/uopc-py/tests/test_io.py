"""Files that NumPy and the package safetensors write are read, and they read what is written here."""

import json
import pathlib

import numpy as np
import pytest

import uopc
from uopc import Tensor

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def array(dtype, shape=(2, 3)):
    """Numbers whose bytes differ, the extremes among them."""
    dtype = np.dtype(dtype)
    n = int(np.prod(shape))
    if dtype.kind == "b":
        values = np.arange(n) % 2 == 0
    elif dtype.kind in "iu":
        values = np.arange(n).astype(dtype) * 3 + np.iinfo(dtype).min
    else:
        values = np.linspace(-3.3, 7.7, n)
        values[:2] = [np.nan, -0.0][:n]
    return values.astype(dtype).reshape(shape)


def same(tensor, expected):
    found = tensor.numpy()
    assert found.dtype == expected.dtype.newbyteorder("=") and found.shape == expected.shape
    assert np.array_equal(found, expected, equal_nan=expected.dtype.kind == "f")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("shape", [(2, 3), (5,), (), (2, 0, 3), (2, 3, 4, 1)])
def test_npy(tmp_path, order, layout, shape):
    path = tmp_path / "a.npy"
    for dtype in DTYPES:
        wanted = array(np.dtype(dtype).newbyteorder(order), shape)
        np.save(path, np.asarray(wanted, order=layout))
        same(uopc.io.load_npy(path), wanted)
        same(uopc.io.open(path)["a"], wanted)
        uopc.io.save_npy(path, Tensor(wanted.astype(wanted.dtype.newbyteorder("="))))
        back = np.load(path)
        assert back.dtype == wanted.dtype.newbyteorder("=") and back.shape == shape
        assert np.array_equal(back, wanted, equal_nan=wanted.dtype.kind == "f")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save):
    path = tmp_path / "all.npz"
    wanted = {f"layer/{d}": array(d) for d in DTYPES}
    wanted["weight \u00e4"] = np.asfortranarray(array("f4", (3, 4)))
    save(path, **wanted)
    file = uopc.io.open(path)
    assert file.format == "npz" and list(file) == sorted(wanted) and len(file) == len(wanted)
    for name, a in wanted.items():
        assert file.info(name) == (np.dtype(a.dtype).name, a.shape)
        same(file[name], a)
    for name, t in uopc.io.load(path).items():
        same(t, wanted[name])


@pytest.mark.parametrize("compress", [False, True])
def test_numpy_reads_our_npz(tmp_path, compress):
    path = tmp_path / "all.npz"
    wanted = {f"layer/{d}": array(d) for d in DTYPES}
    uopc.io.save_npz(path, {n: Tensor(a) for n, a in wanted.items()}, compress=compress)
    with np.load(path, allow_pickle=False) as file:
        assert sorted(file.files) == sorted(wanted)
        for name, a in wanted.items():
            assert file[name].dtype == a.dtype
            assert np.array_equal(file[name], a, equal_nan=a.dtype.kind == "f")


def test_bf16_in_numpy_files(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path = tmp_path / "b.npy"
    wanted = np.array([1.5, -2.0, 3.0], ml_dtypes.bfloat16)
    np.save(path, wanted)
    t = uopc.io.load_npy(path)
    assert t.dtype == uopc.bf16 and t.tolist() == [1.5, -2.0, 3.0]
    uopc.io.save_npy(path, t)
    assert np.array_equal(np.load(path).view(ml_dtypes.bfloat16), wanted)


def test_safetensors(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "all.safetensors"
    wanted = {d: array(d) for d in DTYPES}
    package.save_file(wanted, path, metadata={"by": "them"})
    file = uopc.io.open(path)
    assert file.metadata == {"by": "them"}
    for name, a in wanted.items():
        same(file[name], a)
    uopc.io.save(path, {n: Tensor(a) for n, a in wanted.items()}, metadata={"by": "us"})
    # The file was replaced as a whole: what was opened before is what it was.
    assert file.metadata == {"by": "them"}
    same(file["f8"], wanted["f8"])
    for name, a in package.load_file(path).items():
        assert a.dtype == wanted[name].dtype
        assert np.array_equal(a, wanted[name], equal_nan=a.dtype.kind == "f")
    with __import__("safetensors").safe_open(path, "np") as back:
        assert back.metadata() == {"by": "us", "uopc": "1"}


def test_fixtures_of_the_packages(tmp_path):
    """The files with which the library itself is tested, byte by byte."""
    fixtures = pathlib.Path(__file__).parents[2] / "uopc" / "tests" / "fixtures" / "io.json"
    if not fixtures.exists():
        pytest.skip("the checkout is not there")
    for name, file in json.loads(fixtures.read_text()).items():
        if not name.endswith((".safetensors", ".npz")):
            continue
        path = tmp_path / name
        path.write_bytes(bytes.fromhex(file["bytes"]))
        loaded = uopc.io.load(path)
        assert sorted(loaded) == sorted(file["tensors"])
        for key, wanted in file["tensors"].items():
            assert loaded[key].dtype.name == wanted["dtype"]
            assert loaded[key].shape == tuple(wanted["shape"])


def test_a_file_is_a_mapping(tmp_path):
    path = tmp_path / "two.safetensors"
    uopc.io.save(path, {"b": Tensor([1.0]), "a": Tensor([2, 3])})
    file = uopc.io.open(path)
    assert list(file) == file.keys() == ["a", "b"] and "a" in file and "c" not in file and 3 not in file
    assert {n: t.tolist() for n, t in dict(file).items()} == {"a": [2, 3], "b": [1.0]}
    assert [t.tolist() for t in file.values()] == [[2, 3], [1.0]]
    assert [n for n, _ in file.items()] == ["a", "b"]
    assert file.info("a") == (uopc.i32, (2,)) and repr(file) == "TensorFile(safetensors, 2 tensors)"
    with pytest.raises(KeyError, match="c"):
        file["c"]
    with pytest.raises(KeyError):
        file.info("c")


def test_formats(tmp_path):
    named = {"a": Tensor([1.0]), "b": Tensor([2.0, 3.0])}
    for path, format in [("x.npz", "npz"), ("y", "safetensors"), ("z/", "sharded")]:
        place = f"{tmp_path}/{path}"
        uopc.io.save(place, named)
        assert uopc.io.open(place).format == format
        assert {n: t.tolist() for n, t in uopc.io.load(place).items()} == {"a": [1.0], "b": [2.0, 3.0]}
    uopc.io.save(tmp_path / "odd", named, format="npz")
    assert uopc.io.open(tmp_path / "odd").format == "npz"
    with pytest.raises(ValueError, match="is no format of tensors"):
        uopc.io.save(tmp_path / "odd", named, format="pt")
    with pytest.raises(OSError, match="holds one array, not 2"):
        uopc.io.save(tmp_path / "x.npy", named)
    with pytest.raises(OSError, match="no place for metadata"):
        uopc.io.save(tmp_path / "x.npz", named, metadata={"a": "b"})
    uopc.io.save_sharded(tmp_path / "s", named, max_shard_size=4, metadata={"by": "us"})
    assert uopc.io.open(tmp_path / "s" / "model.safetensors.index.json").metadata["by"] == "us"
    with pytest.raises(OSError, match="not empty"):
        uopc.io.save_sharded(tmp_path / "s", named)


def test_idx_tables_and_text(tmp_path):
    for dtype in ["u1", "i1", "i2", "i4", "f4", "f8"]:
        for name in ["a-idx", "a-idx.gz"]:
            wanted = array(dtype)
            uopc.io.save_idx(tmp_path / name, wanted)
            same(uopc.io.load_idx(tmp_path / name), wanted)
    path = tmp_path / "t.csv"
    wanted = array("f8", (4, 2))[1:]
    np.savetxt(path, wanted, delimiter=";", header="left;right", comments="")
    values, columns = uopc.io.load_csv(path, header=True, delimiter=";", dtype="f64")
    assert columns == ["left", "right"] and np.array_equal(values.numpy(), wanted)
    uopc.io.save_csv(path, values)
    assert np.array_equal(np.loadtxt(path, delimiter=","), wanted)
    uopc.io.save_text(path, "1,2\n3,\n")
    with pytest.raises(OSError, match="t.csv: line 2, column 2: is empty"):
        uopc.io.load_csv(path)
    assert uopc.io.load_csv(path, missing=-1, dtype=int)[0].tolist() == [[1, 2], [3, -1]]
    assert uopc.io.load_text(path) == "1,2\n3,\n" and uopc.io.load_bytes(path).tolist()[:2] == [49, 44]
    alphabet = uopc.io.Alphabet("hello")
    assert alphabet.characters == "ehlo" and alphabet.encode("ole").dtype == "i32"
    assert alphabet.decode(alphabet.encode("ole")) == "ole"
    for call in (lambda: alphabet.encode("x"), lambda: alphabet.decode([4]), lambda: alphabet.decode(Tensor([0.0]))):
        with pytest.raises(ValueError):
            call()


def test_objects_and_damage_are_refused(tmp_path):
    path = tmp_path / "a.npy"
    for bad in [np.array([{}], object), np.array(["a"]), np.array([1j]), np.zeros(2, "i4,f4")]:
        np.save(path, bad, allow_pickle=True)
        with pytest.raises(OSError, match="a.npy: "):
            uopc.io.load_npy(path)
    whole = tmp_path / "a.npz"
    np.savez(whole, a=np.arange(3))
    content = whole.read_bytes()
    for cut in range(0, len(content), 7):
        whole.write_bytes(content[:cut])
        with pytest.raises(OSError):
            uopc.io.load(whole)
