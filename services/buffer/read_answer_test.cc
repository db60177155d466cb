// SPDX-License-Identifier: Apache-2.0
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/buffer/replay_service.h"
#include "tests/testing/replay_entries.h"

namespace oxbow::buffer {
namespace {

std::string Bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
  return bytes;
}

LatentPieces InPieces(const std::string& bytes, size_t count) {
  const auto memory = std::make_shared<const std::string>(bytes);
  LatentPieces pieces{.pieces = {}, .memory = memory};
  for (size_t i = 0; i < count; ++i) {
    const size_t from = bytes.size() * i / count;
    pieces.pieces.push_back(
        std::string_view(*memory).substr(from, bytes.size() * (i + 1) / count - from));
  }
  return pieces;
}

v1::ReadResponse Received(const ReadAnswer& answer) {
  grpc::ByteBuffer buffer;
  bool own = false;
  EXPECT_TRUE(grpc::SerializationTraits<ReadAnswer>::Serialize(answer, &buffer, &own).ok());
  grpc::Slice whole;
  EXPECT_TRUE(buffer.DumpToSingleSlice(&whole).ok());
  v1::ReadResponse message;
  EXPECT_TRUE(message.ParseFromArray(whole.begin(), static_cast<int>(whole.size())));
  return message;
}

TEST(ReadAnswerTest, ArrivesAsTheMessageWithItsLatents) {
  v1::ReadResponse entry, chunk;
  *entry.mutable_whole()->add_entries() = TestMessage(7, 3, 5, 0.5);
  entry.mutable_whole()->mutable_entries(0)->mutable_trajectory()->mutable_latents()->clear_data();
  chunk.mutable_chunk()->set_offset(300);
  // Sizes whose lengths have one to four bytes; pieces that are copied and that are not.
  for (const size_t size : {0, 1, 100, 128, 16'000, 70'000, 3'000'000}) {
    for (const size_t pieces : {1, 2, 17}) {
      SCOPED_TRACE(::testing::Message() << size << " bytes in " << pieces);
      const std::string bytes = Bytes(size);
      v1::ReadResponse wanted = entry;
      if (size > 0) {
        wanted.mutable_whole()
            ->mutable_entries(0)
            ->mutable_trajectory()
            ->mutable_latents()
            ->set_data(bytes);
      }
      const LatentPieces latents = InPieces(bytes, pieces);
      EXPECT_EQ(Received({entry, latents}).SerializeAsString(), wanted.SerializeAsString());
      wanted = chunk;
      wanted.mutable_chunk()->set_data(bytes);
      EXPECT_EQ(Received({chunk, latents}).SerializeAsString(), wanted.SerializeAsString());
    }
  }
}

TEST(ReadAnswerTest, TheMemoryStaysUntilTheBytesAreSent) {
  ReadAnswer answer{.message = {}, .latents = InPieces(Bytes(100'000), 2)};
  answer.message.mutable_chunk()->set_offset(1);
  const std::weak_ptr<const void> memory = answer.latents.memory;
  grpc::ByteBuffer buffer;
  bool own = false;
  ASSERT_TRUE(grpc::SerializationTraits<ReadAnswer>::Serialize(answer, &buffer, &own).ok());
  answer = {};
  EXPECT_FALSE(memory.expired());
  buffer.Clear();
  EXPECT_TRUE(memory.expired());
}

TEST(ReadAnswerTest, ManySmallEntriesTravelAsTheyAre) {
  v1::ReadResponse message;
  for (uint64_t id = 1; id <= 3; ++id) {
    *message.mutable_whole()->add_entries() = TestMessage(id, id, 0, 1);
  }
  EXPECT_EQ(Received({message, {}}).SerializeAsString(), message.SerializeAsString());
}

TEST(LatentPiecesTest, APartIsThatOfTheJoinedBytes) {
  const std::string bytes = Bytes(100);
  const LatentPieces pieces = InPieces(bytes, 7);
  EXPECT_EQ(pieces.Joined(), bytes);
  for (size_t offset = 0; offset <= bytes.size(); offset += 5) {
    for (const size_t count : {0, 1, 14, 40, 200}) {
      const LatentPieces part = pieces.Part(offset, count);
      EXPECT_EQ(part.Joined(), bytes.substr(offset, count)) << offset << " + " << count;
      EXPECT_EQ(part.memory, pieces.memory);
    }
  }
}

}  // namespace
}  // namespace oxbow::buffer
