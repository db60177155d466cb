// SPDX-License-Identifier: Apache-2.0
// For any pieces from any source: a download of a manifest's chunks or of contents keeps only what
// matches its checksum, and is complete when it has all. So does a round of a broadcast.
#include <memory>

#include "base/check.h"
#include "services/weights/broadcast_round.h"
#include "services/weights/download.h"
#include "services/weights/snapshot_maker.h"
#include "tests/fuzz/call_script.h"

namespace oxbow::weights {
namespace {

constexpr uint64_t kChunk = 16, kRoundMax = 1 << 12;

// A broadcast group whose rank 0 says `text`, and then these bytes again and again.
class Saying final : public BroadcastGroup {
 public:
  Saying(std::string text, std::string bytes) : text_(std::move(text)), bytes_(std::move(bytes)) {}

  absl::Status Broadcast(std::string& text) override {
    text = text_;
    return absl::OkStatus();
  }
  std::unique_ptr<Transfer> Start(std::span<char> bytes, std::shared_ptr<const void>) override {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = bytes_[at_++ % bytes_.size()];
    return std::make_unique<Done>();
  }
  absl::Status Barrier() override { return absl::OkStatus(); }
  void Abort(const std::string&) override {}

 private:
  struct Done final : Transfer {
    absl::Status Wait() override { return absl::OkStatus(); }
  };
  const std::string text_;
  const std::string bytes_;
  size_t at_ = 0;
};

const Snapshot& Published() {
  static const Snapshot snapshot = [] {
    std::string bytes(100, 'a');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>('a' + i / kChunk);
    return MakeSnapshot({Epoch(1), PolicyVersion(1), LearnerStep(1)}, {},
                        {{"adapter", {io::DType::kU8, {100}, bytes}}}, kChunk);
  }();
  return snapshot;
}

// All chunks of the snapshot, by hash.
std::string Bytes() {
  std::string bytes;
  for (const auto& [hash, chunk] : Published().chunks) bytes += *chunk;
  return bytes;
}

void Check(const Download& download) {
  const Snapshot& snapshot = Published();
  for (const auto& [hash, chunk] : download.verified()) {
    const auto real = snapshot.chunks.find(hash);
    OXBOW_CHECK(real != snapshot.chunks.end() && *real->second == *chunk) << "a forged chunk";
  }
  const size_t there = download.verified().size();
  OXBOW_CHECK(there + download.lacking() == snapshot.chunks.size()) << there;
  OXBOW_CHECK(download.complete() == (there == snapshot.chunks.size()));
}

}  // namespace
}  // namespace oxbow::weights

std::vector<const google::protobuf::Message*> oxbow::fuzz::CallMessages() {
  return {&v1::FetchResponse::default_instance(), &v1::BroadcastRound::default_instance(), nullptr};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;           // NOLINT: a file of one function.
  using namespace oxbow::weights;  // NOLINT: a file of one function.
  fuzz::BeQuiet();
  const Snapshot& snapshot = Published();
  ChunkStore store(2, 1 << 20);
  auto download = Download::Start(snapshot.manifest, store, ChunkCheck::kSha256);
  OXBOW_CHECK(download.ok()) << download.status().ToString();
  ContentStore contents(1 << 20);
  Download by_hash = Download::Of(ChunksOf(snapshot.manifest), contents);
  for (const fuzz::CallStep& step : fuzz::Script(data, size, 3)) {
    v1::FetchResponse piece;
    if (step.call == 0 && fuzz::Parse(step.message, piece)) {
      v1::FetchResponse same = piece;
      if (!download->complete()) (void)download->Take(piece);
      if (!by_hash.complete()) (void)by_hash.Take(same);
    } else if (step.call == 1) {
      static const std::string bytes = Bytes();
      Saying group(std::string(step.message), bytes);
      ReceivedRound received;
      (void)ReceiveRound(group, kRoundMax, *download, received);
      OXBOW_CHECK(received.bytes <= kRoundMax) << received.bytes;
      download->Settle();
    } else {
      download->ForgetPartial();
      by_hash.ForgetPartial();
    }
  }
  Check(*download);
  Check(by_hash);
  return 0;
}
