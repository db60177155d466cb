#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the start inputs of the fuzz targets of calls: steps in protobuf's text form, encoded by protoc.

Run it again after a change of the messages or of a target's list of calls:  tests/fuzz/make_seeds.py
"""
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent
PROTO = HERE.parent.parent / "proto"


def encoded(message, text):
    if message is None:
        return text.encode("latin-1")
    done = subprocess.run(
        ["protoc", f"--proto_path={PROTO}", f"--encode=oxbow.v1.{message}", *map(str, sorted(PROTO.rglob("*.proto")))],
        input=text.encode(), capture_output=True, check=True)
    return done.stdout


def write(target, name, steps):
    data = b""
    for call, message, text in steps:
        body = bytes([call]) + encoded(message, text)
        data += len(body).to_bytes(2, "little") + body
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def tensor(*shape, dtype="DTYPE_F32"):
    return f"dtype: {dtype} " + " ".join(f"shape: {size}" for size in shape)


# Coordinator and sink: calls of coordinator_calls_fuzz.cc.
def work(text, worker="a", process=1):
    return (3 if worker == "a" else 4, "WorkRequest", f'epoch: 4 worker_id: "{worker}" process: {process} {text}')


def result(worker="a", replayed=False, bad=""):
    samples = ""
    for sample in range(2):
        head = "replayed: true entry_id: 5 kept_steps: 1 first_latent: 1 " if replayed and sample == 0 else ""
        shape = tensor(3 if head else 4, 1, 2, 2)
        samples += f"""trajectories {{ sample: {sample} schedule_id: 77 reward: 0.5 {head} latents {{ {shape} }}
            log_prob: [-1, -1, -1] sde: [true, true, false] behaviour_version: [0, 0, 0]
            rewards {{ name: "digits_ocr" value: 0.5 }} {bad} }}"""
    return (5 if worker == "a" else 6, "InsertRequest", f'header {{ epoch: 4 worker_id: "{worker}" {samples} }}')


def chunk(trajectory, size, offset=0, worker="a"):
    zeros = "\\000" * size
    return (5 if worker == "a" else 6, "InsertRequest",
            f'chunk {{ trajectory: {trajectory} offset: {offset} data: "{zeros}" }}')


CREDIT = "credit { policy_version: 0 groups: 1 }"
MIXED = [work(CREDIT), result(replayed=True), chunk(0, 48), chunk(1, 32), chunk(1, 32, 32)]
FRESH = [work(CREDIT, "b", 2), result("b"), chunk(0, 64, worker="b"), chunk(1, 64, worker="b")]
LOOP = (9, None, "")
write("coordinator_calls", "step", [(0, "RegisterRequest", 'worker_id: "a" host: "h" version: "1" protocol: 1'),
                                    work("hello {}"), *MIXED, *FRESH, (1, "StatusRequest", ""), LOOP,
                                    work("credit { policy_version: 1 groups: 2 }"), result(), (7, None, "\x00")])
write("coordinator_calls", "failures", [work("credit { groups: 2 }"), work('renew { lease_ids: 17179869185 waiting_for: "r" }'),
                                        work('finished { lease_id: 17179869185 failure: "x" unscored: true }'),
                                        work('unscored { lease_id: 17179869186 samples: 1 reason: "x" }'),
                                        (8, None, "123456"), work("credit { groups: 2 }", "b"),
                                        work("hello {}", "a", 9), (7, None, "\x06"), work("goodbye {}", "b"),
                                        (2, "DrainRequest", 'reason: "enough"')])
write("coordinator_calls", "refused", [work(CREDIT), result(bad="first_latent: 4294967295"), work(CREDIT),
                                       result(bad="replayed: true kept_steps: 4294967295"), result(), chunk(1, 8), chunk(0, 3)])

# Ranks.
hello = lambda rank: f'rank: {rank} hello {{ sink_endpoint: "127.0.0.1:1" metrics_endpoint: "127.0.0.1:2" protocol: 1 }}'
write("rank_calls", "join", [(0, "RankReport", hello(1)), (1, "RankReport", hello(2)), (2, "RankReport", hello(2)),
                             (0, "RankReport", "rank: 1 alive {}"), (5, None, ""), (4, None, "\x00"), (4, None, "\x05")])
write("rank_calls", "accept", [(3, "InsertRequest", result()[2]), (3, "InsertRequest", chunk(0, 16)[2]),
                               (3, "InsertRequest", chunk(1, 16)[2]), (4, None, "\x03")])

# The replay buffer.
def header(entry, prompt=1, reward=0.5, table="", run="r", more=""):
    return (0, "OfferRequest", f'''epoch: 1 run_uid: "{run}" header {{ entry_id: {entry} prompt {{ id: {prompt} text: "t" }}
        birth_step: 0 raw_reward: {reward} sigmas: [1, 0] table: "{table}"
        conditioning {{ tokens {{ dtype: DTYPE_U8 shape: 2 data: "ab" }} }}
        trajectory {{ latents {{ {tensor(2, 2)} }} log_prob: -1 sde: true behaviour_version: 0 }} {more} }}''')


def latents(run="r"):
    return (0, "OfferRequest", f'epoch: 1 run_uid: "{run}" chunk {{ data: "0123456789abcdef" }}')


END = (1, None, "")
DRAW = (3, "DrawRequest", 'epoch: 1 run_uid: "r" step: 1 count: 2 seed: 3')
write("replay_calls", "step", [header(7), latents(), header(8, 2), latents(), END, DRAW,
                               (2, "ReadRequest", "entry_id: 7 whole: true"), (2, "ReadRequest", "entry_id: 8 first_latent: 1 latents: 1"),
                               (4, "AdvanceRequest", 'epoch: 1 run_uid: "r" step: 1 used_entry_ids: 7 evict_entry_ids: 8'),
                               (7, "InfoRequest", ""), (8, "ListRequest", "limit: 5"), (9, "VerifyRequest", "limit: 1")])
write("replay_calls", "queues", [(0, "OfferRequest", 'epoch: 1 run_uid: "r" header { entry_id: 9 prompt { id: 3 } table: "hard_prompts" }'),
                                 header(10, 4, table="recent_groups", more="group { group_id: 2 }"), latents(), END,
                                 (3, "DrawRequest", 'epoch: 1 run_uid: "r" step: 2 count: 2 table: "hard_prompts"'),
                                 (8, "ListRequest", 'table: "recent_groups"')])
write("replay_calls", "owners", [header(7), latents(), END, (5, "CheckpointRequest", 'epoch: 1 run_uid: "r" name: "step_1" keep: 2'),
                                 (6, "RestoreRequest", 'epoch: 2 run_uid: "r" name: "step_1" step: 1 shards: 1 protocol: 1 start: 5'),
                                 header(8, run="s"), latents("s"), END,
                                 (6, "RestoreRequest", 'epoch: 1 run_uid: "s" take_from: "r" protocol: 1'), DRAW])

# Rewards.
IMAGE = 'image { width: 2 height: 2 channels: 1 frames: 1 pixels: "abcd" }'
write("reward_calls", "batch", [(0, "ScoreRequest", f'prompt {{ text: "text 123" }} items {{ item: 1 {IMAGE} }} items {{ item: 2 {IMAGE} }}'),
                                (0, "ScoreRequest", f'prompt {{ text: "a red circle" metadata_json: "{{}}" }} items {{ item: 3 {IMAGE} }} rewards: "unknown"'),
                                (2, "DescribeRequest", ""), (1, "ScoreRequest", 'rewards: "unknown"')])
PIECE = 'image { pixels: "0123456789" }'
write("reward_calls", "pieces", [(0, "ScoreRequest", f'prompt {{ text: "text 123" }} items {{ item: 1 image {{ width: 5 height: 4 channels: 1 pixels_size: 20 }} }} items {{ item: 2 {IMAGE} }}'),
                                 (0, "ScoreRequest", f"items {{ item: 1 {PIECE} }}"), (0, "ScoreRequest", f"items {{ item: 1 {PIECE} }}"),
                                 (0, "ScoreRequest", f"items {{ item: 1 {PIECE} }}")])
# A video of three frames, which scorers read together: one whole and one in pieces that end within frames.
CLIP = 'prompt { text: "clip 47" } rewards: "clip_ocr" rewards: "clip_steady"'
FRAMES = "width: 20 height: 8 channels: 1 frames: 3"
pixels = lambda count, first=0: "".join(f"\\{(first + i) * 37 % 256:03o}" for i in range(count))
write("reward_calls", "video", [
    (0, "ScoreRequest", f'{CLIP} items {{ item: 1 image {{ {FRAMES} pixels: "{pixels(480)}" }} }} '
                        f'items {{ item: 2 image {{ {FRAMES} frames_every: 1 pixels: "{pixels(480, 7)}" }} }}'),
    (0, "ScoreRequest", f'{CLIP} items {{ item: 3 image {{ {FRAMES} pixels_size: 480 pixels: "{pixels(100)}" }} }}'),
    (0, "ScoreRequest", f'items {{ item: 3 image {{ pixels: "{pixels(200, 100)}" }} }}'),
    (0, "ScoreRequest", f'items {{ item: 3 image {{ pixels: "{pixels(180, 300)}" }} }}'),
    (0, "ScoreRequest", f'{CLIP} items {{ item: 4 image {{ {FRAMES} frames_every: 2 pixels_size: 480 }} }}')])

# Weights. Hashes are those of the first snapshots' chunks.
write("weight_calls", "watch", [(0, "WatchRequest", 'epoch: 7 worker_id: "a" relay_endpoint: "0.0.0.0:5"'),
                                (0, "WatchRequest", 'epoch: 7 worker_id: "b" have_any: true have_version: 1'), (4, None, ""),
                                (1, "FetchRequest", 'epoch: 7 worker_id: "a" chunk_sha256: "x" first_offset: 3'),
                                (2, "ReportAppliedRequest", 'epoch: 7 worker_id: "a" policy_version: 1 probe_bits_equal: true'),
                                (3, "ReportPeerRequest", 'epoch: 7 worker_id: "a" peer { worker_id: "b" } fault: PEER_FAULT_CORRUPT'), (5, None, "")])
sha = lambda data: "".join(f"\\{byte:03o}" for byte in __import__("hashlib").sha256(data).digest())
write("weight_calls", "fetch", [(1, "FetchRequest", f'epoch: 7 chunk_sha256: "{sha(b"b" * 16)}" chunk_sha256: "{sha(b"b" * 8)}" first_offset: 3'),
                                (1, "FetchRequest", f'chunk_sha256: "{sha(bytes([1]) * 16)}"'), (4, None, ""), (4, None, "")])
pieces = [(b"%c" % letter) * size for letter, size in zip(b"abcdefg", (16, 16, 16, 16, 16, 16, 4))]
write("weight_download", "pieces", [(0, "FetchResponse", f'chunk_sha256: "{sha(piece)}" data: "{piece.decode()}"') for piece in pieces])
write("weight_download", "parts", [(0, "FetchResponse", f'chunk_sha256: "{sha(pieces[0])}" data: "aaaa"'),
                                   (0, "FetchResponse", f'chunk_sha256: "{sha(pieces[0])}" offset: 4 data: "aaaaaaaaaaaa"'), (2, None, ""),
                                   (0, "FetchResponse", f'chunk_sha256: "{sha(pieces[1])}" data: "cccccccccccccccc"')])
by_hash = sorted(pieces, key=lambda piece: __import__("hashlib").sha256(piece).digest())
write("weight_download", "round", [(1, "BroadcastRound", "policy_version: 1 " + " ".join(
    f'chunks {{ sha256: "{sha(piece)}" bytes: {len(piece)} }}' for piece in by_hash))])
write("relay_roster", "tree", [(0, None, f"{name}\x1e0.0.0.0:{port}\x1eipv4:10.0.0.{host}:999") for name, port, host in
                               [("a", 5, 1), ("b", 6, 1), ("c", 7, 2), ("d", 8, 3)]] +
      [(1, "ReportPeerRequest", f'worker_id: "a" peer {{ worker_id: "{name}" }} fault: {fault}') for name, fault in
       [("b", "PEER_FAULT_CORRUPT"), ("c", "PEER_FAULT_STALLED")]] + [(2, None, "c"), (3, None, ""), (0, None, "e\x1e[::]:9\x1eipv6:%5B::1%5D:77")])
item = 'groups { group { group_id: 6 lease_id: 9 prompt { id: 4 text: "t" } trajectories { sample: 1 latents { shape: 1 data: "abcd" } } }'
write("step_manifest", "pieces", [(0, "RankCommand", f"step {{ step: 3 more: true {item} }} }}"), (0, "RankCommand", "alive {}"),
                                  (0, "RankCommand", f"step {{ step: 3 {item} mixed: true kept_steps: 2 stored_reward: 0.5 head {{ sample: 1 }} }} }}")])
