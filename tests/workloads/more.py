"""More of what training code does with files: table formats, checkpoints of JAX, caches of a hub.

The same rules as `programs.py`: each gets one directory (dcp_two_ranks a second one of the same bucket, in SECOND_DIR).

    python more.py one NAME DIR
"""

import http.server
import os
import pathlib
import subprocess
import sys
import threading
import warnings

warnings.filterwarnings("ignore")


def lance_appends(d):
    import lance
    import pyarrow as pa

    for i in range(6):
        table = pa.table({"a": list(range(i * 1000, i * 1000 + 1000))})
        lance.write_dataset(table, f"{d}/x.lance", mode="append" if i else "create")
    found = lance.dataset(f"{d}/x.lance")
    assert found.count_rows() == 6000
    assert found.version == 6
    found.optimize.compact_files()
    assert lance.dataset(f"{d}/x.lance").count_rows() == 6000


def delta_appends(d):
    import deltalake
    import pyarrow as pa

    for i in range(6):
        table = pa.table({"a": list(range(i * 1000, i * 1000 + 1000))})
        deltalake.write_deltalake(f"{d}/x.delta", table, mode="append")
    found = deltalake.DeltaTable(f"{d}/x.delta")
    assert found.version() == 5
    found.create_checkpoint()
    found.optimize.compact()
    assert deltalake.DeltaTable(f"{d}/x.delta").to_pyarrow_table().num_rows == 6000


def obstore_local(d):
    import obstore
    from obstore.exceptions import AlreadyExistsError
    from obstore.store import LocalStore

    store = LocalStore(prefix=f"{d}/obstore", mkdir=True)
    obstore.put(store, "a/one", b"x" * 1000)
    obstore.put(store, "a/one", b"y" * 1000)
    obstore.put(store, "new", b"z", mode="create")
    try:
        obstore.put(store, "new", b"again", mode="create")
    except AlreadyExistsError:
        pass
    else:
        raise AssertionError("it was there")
    obstore.put(store, "big", os.urandom(12_000_000), chunk_size=5_000_000, use_multipart=True)
    obstore.copy(store, "big", "copied")
    obstore.rename(store, "copied", "renamed")
    obstore.rename(store, "a/one", "moved", overwrite=False)
    try:
        obstore.copy(store, "big", "moved", overwrite=False)
    except AlreadyExistsError:
        pass
    else:
        raise AssertionError("it was there")
    assert bytes(obstore.get(store, "moved").bytes()) == b"y" * 1000
    assert bytes(obstore.get(store, "renamed").bytes()) == bytes(obstore.get(store, "big").bytes())
    obstore.delete(store, "new")
    assert sorted(each["path"] for page in obstore.list(store) for each in page) == ["big", "moved", "renamed"]


def tensorstore_zarr(d):
    import numpy as np
    import tensorstore as ts

    for driver in ("zarr3", "n5"):
        where = {"driver": driver, "kvstore": {"driver": "file", "path": f"{d}/ts-{driver}/"}}
        made = ts.open(where, create=True, delete_existing=True, dtype=ts.float32, shape=[1000, 300]).result()
        values = np.random.rand(1000, 300).astype("f4")
        made.write(values).result()
        assert np.array_equal(ts.open(where).result().read().result(), values)
    store = ts.KvStore.open({"driver": "file", "path": f"{d}/ts-kv/"}).result()
    first = store.write("k", b"one").result()
    store.write("k", b"two", if_equal=first.generation).result()
    assert store.write("k", b"three", if_equal=first.generation).result().generation != first.generation
    assert store.read("k").result().value == b"two"


def orbax(d):
    import jax.numpy as jnp
    import numpy as np
    import orbax.checkpoint as ocp

    tree = {"w": jnp.arange(100_000.0), "deep": {"b": jnp.ones((10, 10))}}
    path = pathlib.Path(d).resolve() / "orbax"
    with ocp.CheckpointManager(path, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
        for step in range(4):
            manager.save(step, args=ocp.args.StandardSave(tree))
        manager.wait_until_finished()
        assert manager.all_steps() == [2, 3]
        found = manager.restore(3, args=ocp.args.StandardRestore(tree))
    assert np.array_equal(found["w"], tree["w"])


def mds(d):
    import numpy as np
    from streaming import LocalDataset, MDSWriter

    with MDSWriter(out=f"{d}/mds", columns={"x": "ndarray", "y": "int"}, size_limit=1 << 18) as out:
        for i in range(500):
            out.write({"x": np.full(300, i, "f4"), "y": i})
    found = LocalDataset(f"{d}/mds")
    assert len(found) == 500
    assert found[123]["x"][7] == 123


_RANK = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(1)
want = {f"l{i}": torch.randn(512, 512) for i in range(4)}
state = {k: distribute_tensor(v, mesh, [Shard(0)]) for k, v in want.items()}
where = sys.argv[1 + dist.get_rank()]
for step in range(2):
    dcp.save(state, checkpoint_id=f"{where}/dcp2/step{step}")
got = {k: distribute_tensor(torch.zeros(512, 512), mesh, [Shard(0)]) for k in want}
dcp.load(got, checkpoint_id=f"{where}/dcp2/step1")
assert all(torch.equal(got[k].full_tensor(), want[k]) for k in want)
dist.destroy_process_group()
"""


def dcp_two_ranks(d):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", "--standalone"]
    script = pathlib.Path(f"{d}/rank.py")
    script.write_text(_RANK)
    subprocess.run([*command, str(script), d, os.environ.get("SECOND_DIR", d)], check=True)


def hf_trainer(d):
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    config = BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=100
    )
    data = [{"input_ids": torch.randint(0, 100, (8,)), "labels": i % 2} for i in range(32)]

    def trainer(steps):
        arguments = TrainingArguments(
            f"{d}/trainer",
            max_steps=steps,
            save_steps=2,
            save_total_limit=2,
            per_device_train_batch_size=4,
            report_to=["tensorboard"],
            logging_steps=1,
            use_cpu=True,
            disable_tqdm=True,
        )
        return Trainer(BertForSequenceClassification(config), arguments, train_dataset=data)

    trainer(8).train()
    names = sorted(path.name for path in pathlib.Path(f"{d}/trainer").glob("checkpoint-*"))
    assert names == ["checkpoint-6", "checkpoint-8"], names
    trainer(10).train(resume_from_checkpoint=True)


def duckdb_copy(d):
    import duckdb

    db = duckdb.connect()
    db.execute(f"COPY (SELECT range AS i, range % 5 AS p FROM range(100000)) TO '{d}/duck.parquet'")
    db.execute(
        f"COPY (SELECT range AS i, range % 5 AS p FROM range(1000)) TO '{d}/duck' (FORMAT parquet, PARTITION_BY p)"
    )
    db.execute(f"COPY (SELECT * FROM range(1000)) TO '{d}/duck.csv'")
    assert db.execute(f"SELECT count(*) FROM '{d}/duck.parquet'").fetchone() == (100000,)
    assert db.execute(f"SELECT sum(i) FROM '{d}/duck/*/*.parquet' WHERE p = 1").fetchone() == (99700,)
    db.close()
    for _ in range(2):
        kept = duckdb.connect(f"{d}/kept.duckdb")
        kept.execute("CREATE TABLE IF NOT EXISTS t AS SELECT range AS i FROM range(10000)")
        kept.execute("UPDATE t SET i = i + 1")
        kept.execute("CHECKPOINT")
        kept.close()
    kept = duckdb.connect(f"{d}/kept.duckdb", read_only=True)
    assert kept.execute("SELECT min(i), max(i) FROM t").fetchone() == (2, 10001)


def sqlite(d):
    import sqlite3

    for mode in ("DELETE", "TRUNCATE", "PERSIST"):
        db = sqlite3.connect(f"{d}/{mode}.sqlite")
        db.execute(f"PRAGMA journal_mode={mode}")
        db.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        for i in range(10):
            with db:
                db.executemany("INSERT INTO t VALUES (?, ?)", [(i * 10 + j, "x" * 500) for j in range(10)])
        with db:
            db.execute("DELETE FROM t WHERE a % 2")
        db.execute("VACUUM")
        db.close()
        db = sqlite3.connect(f"{d}/{mode}.sqlite")
        assert db.execute("SELECT count(*) FROM t").fetchone() == (50,)
        db.close()


class _Hub(http.server.BaseHTTPRequestHandler):
    """As much of a hub as a download asks for."""

    def do_HEAD(self, body=b""):
        content = self.path.encode() * 20_000
        self.send_response(200)
        self.send_header("ETag", f'"{abs(hash(self.path)):x}"')
        self.send_header("X-Repo-Commit", "c" * 40)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body is not None and self.command == "GET":
            self.wfile.write(content)

    do_GET = do_HEAD

    def log_message(self, *_):
        pass


def hub_cache(d):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_OFFLINE": "0", "HF_HOME": f"{d}/hub",
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    from huggingface_hub import hf_hub_download, scan_cache_dir

    for _ in range(2):
        for name in ("config.json", "sub/model.bin"):
            path = hf_hub_download("some/model", name)
            assert os.path.islink(path)
            assert pathlib.Path(path).read_bytes().endswith(name.encode())
    assert scan_cache_dir(f"{d}/hub/hub").repos
    server.shutdown()


NAMES = (
    "lance_appends", "delta_appends", "obstore_local", "tensorstore_zarr", "orbax", "mds", "dcp_two_ranks",
    "hf_trainer",
    "duckdb_copy", "sqlite", "hub_cache",
)  # fmt: skip


if __name__ == "__main__":
    globals()[sys.argv[2]](sys.argv[3])
