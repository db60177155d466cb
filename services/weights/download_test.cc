// SPDX-License-Identifier: Apache-2.0
#include "services/weights/download.h"

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "base/checksum.h"
#include "services/weights/snapshot_maker.h"

namespace oxbow::weights {
namespace {

// A peer's forgery of a chunk: other bytes with the same XXH3-128, as anybody can make them. Here
// the manifest is made to fit instead.
class ForgedChunkTest : public ::testing::Test {
 protected:
  ForgedChunkTest() {
    snapshot_ = MakeSnapshot({}, {}, {{"a", {io::DType::kU8, {4}, "true"}}});
    v1::SnapshotManifest& manifest = snapshot_.manifest;
    manifest.mutable_tensors(0)->set_chunk_xxh3(0, Checksum128(forged_));
    manifest.set_sha256(HashTensors(manifest, [](const std::string&) { return true; }));
    name_ = manifest.tensors(0).chunk_sha256(0);
  }
  // The outcome for bytes that come as a piece, and as a whole chunk.
  void Expect(ChunkCheck check, const std::string& bytes, bool taken) {
    const std::function<absl::Status(Download&)> ways[] = {
        [&](Download& download) {
          v1::FetchResponse piece;
          piece.set_chunk_sha256(name_);
          piece.set_data(bytes);
          return download.Take(piece);
        },
        [&](Download& download) { return download.Offer(name_, bytes); }};
    for (const auto& way : ways) {
      ChunkStore store(3, 1 << 20);
      Download download = Download::Start(snapshot_.manifest, store, check).value();
      const absl::Status status = way(download);
      EXPECT_EQ(status.ok(), taken) << bytes << ": " << status;
      EXPECT_EQ(absl::IsDataLoss(status), !taken);
      EXPECT_EQ(store.Find(name_) != nullptr, taken) << "what is relayed to others";
    }
  }

  const std::string forged_ = "evil";
  Snapshot snapshot_;
  std::string name_;
};

// Promise: Weights are verified.
TEST_F(ForgedChunkTest, Sha256RefusesItAndXxh3CannotTell) {
  Expect(ChunkCheck::kSha256, forged_, false);
  Expect(ChunkCheck::kSha256, "true", true);
  Expect(ChunkCheck::kXxh3, forged_, true);
  Expect(ChunkCheck::kXxh3, "fals", false);
}

// Later readers of it check no SHA-256.
TEST_F(ForgedChunkTest, NeitherDoesItGetAPlace) {
  for (const ChunkCheck check : {ChunkCheck::kSha256, ChunkCheck::kXxh3}) {
    ChunkStore store(3, 1 << 20);
    Download download = Download::Start(snapshot_.manifest, store, check).value();
    const auto place = [&](const std::string& bytes, const std::string& xxh3) {
      return download.Offer(name_, std::make_shared<const PlacedChunk>(PlacedChunk{
                                       PlaceInMemory(bytes, nullptr), 0, bytes.size(), xxh3}));
    };
    EXPECT_TRUE(absl::IsDataLoss(place("true", Checksum128("true")))) << "not the manifest's";
    EXPECT_EQ(place(forged_, Checksum128(forged_)).ok(), check == ChunkCheck::kXxh3);
    EXPECT_EQ(store.Look(name_).placed != nullptr, check == ChunkCheck::kXxh3);
    download.Settle();
    EXPECT_EQ(download.complete(), check == ChunkCheck::kXxh3);
  }
}

// Small chunks in one message: those before a damaged one stay, and the rest is asked for again.
TEST(DownloadTest, ADamagedSmallChunkLosesNoneBeforeIt) {
  const Snapshot snapshot = MakeSnapshot({}, {},
                                         {{"a", {io::DType::kU8, {3}, "one"}},
                                          {"b", {io::DType::kU8, {3}, "two"}},
                                          {"c", {io::DType::kU8, {3}, "tri"}}});
  ChunkStore store(3, 1 << 20);
  Download download = Download::Start(snapshot.manifest, store).value();
  const auto together = [&](std::initializer_list<const char*> texts) {
    const v1::FetchRequest request = download.Request();
    v1::FetchResponse message;
    for (const char* text : texts) {
      message.add_small()->set_chunk_sha256(request.chunk_sha256(message.small_size() - 1));
      message.mutable_small(message.small_size() - 1)->set_data(text);
    }
    return message;
  };
  v1::FetchResponse damaged = together({"one", "twO", "tri"});
  EXPECT_TRUE(absl::IsDataLoss(download.Take(damaged)));
  EXPECT_EQ(download.progress(), 1u);
  EXPECT_EQ(download.lacking(), 2u);
  v1::FetchResponse rest = together({"tri", "two"});  // A damaged chunk goes to the end.
  EXPECT_TRUE(download.Take(rest).ok());
  EXPECT_TRUE(download.complete());
  EXPECT_EQ(AssembleTensors(snapshot.manifest, download.verified()).at("b").data, "two");
}

}  // namespace
}  // namespace oxbow::weights
