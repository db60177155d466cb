// SPDX-License-Identifier: Apache-2.0
// Tests of the wire form: joined tensors equal the tensors that were cut, and malformed input is
// refused.
#include "rpc/convert.h"

#include <gtest/gtest.h>

#include <random>

#include "rpc/picture_pieces.h"

namespace oxbow::rpc {
namespace {

v1::Tensor Header(v1::DType dtype, std::vector<int64_t> shape) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  return tensor;
}

std::string RandomBytes(std::mt19937_64& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

TEST(ConvertTest, EveryDTypeSurvivesTheRoundTrip) {
  for (const io::DType dtype :
       {io::DType::kF32, io::DType::kF16, io::DType::kBF16, io::DType::kF64, io::DType::kI64,
        io::DType::kI32, io::DType::kU8, io::DType::kBool, io::DType::kI8}) {
    const io::TensorBytes tensor{dtype, {2, 3}, std::string(6 * io::WidthOf(dtype), '\1')};
    const absl::StatusOr<io::TensorBytes> back = TensorFromProto(ToProto(tensor));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->dtype, tensor.dtype);
    EXPECT_EQ(back->shape, tensor.shape);
    EXPECT_EQ(back->data, tensor.data);
  }
}

TEST(ConvertTest, RefusesUnspecifiedUnknownAndIllSizedTensors) {
  EXPECT_FALSE(TensorFromProto(v1::Tensor()).ok());
  EXPECT_FALSE(TensorFromProto(Header(static_cast<v1::DType>(99), {1}), "1234").ok());
  EXPECT_FALSE(TensorFromProto(Header(v1::DTYPE_F32, {2}), "1234").ok());
  EXPECT_FALSE(TensorFromProto(Header(v1::DTYPE_F32, {1}), "12345678").ok());
  EXPECT_FALSE(TensorFromProto(Header(v1::DTYPE_F32, {-1}), "").ok());
  EXPECT_FALSE(
      DeclaredBytes(Header(v1::DTYPE_F32, {int64_t{1} << 40, int64_t{1} << 40}), 1 << 20).ok());
}

TEST(ConvertTest, RandomTensorsCutAnywhereComeBackWhole) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<v1::Tensor> headers;
    std::vector<std::string> sent;
    for (uint64_t i = random() % 5; i > 0; --i) {
      const bool absent = random() % 4 == 0;
      const size_t size = absent ? 0 : random() % 100;
      headers.push_back(absent ? v1::Tensor() : Header(v1::DTYPE_U8, {static_cast<int64_t>(size)}));
      sent.push_back(RandomBytes(random, size));
    }
    absl::StatusOr<ChunkAssembler> assembler = ChunkAssembler::Start(headers, 1000);
    ASSERT_TRUE(assembler.ok()) << assembler.status();
    const uint64_t chunk_bytes = 1 + random() % 40;
    for (uint32_t i = 0; i < sent.size(); ++i) {
      ForEachChunk(sent[i], chunk_bytes, [&](uint64_t offset, std::string_view piece) {
        EXPECT_FALSE(assembler->complete());
        EXPECT_TRUE(assembler->Add(i, offset, piece).ok());
        return true;
      });
    }
    ASSERT_TRUE(assembler->complete());
    EXPECT_EQ(std::move(*assembler).Take(), sent);
  }
}

TEST(ConvertTest, AssemblerRefusesWhatWasNotDeclaredAndStaysUsable) {
  absl::StatusOr<ChunkAssembler> assembler =
      ChunkAssembler::Start({Header(v1::DTYPE_U8, {4}), Header(v1::DTYPE_U8, {2})}, 6);
  ASSERT_TRUE(assembler.ok());
  EXPECT_FALSE(assembler->Add(1, 0, "ab").ok());     // Tensor 0 comes first.
  EXPECT_FALSE(assembler->Add(0, 1, "a").ok());      // A gap.
  EXPECT_FALSE(assembler->Add(0, 0, "abcde").ok());  // One byte too many.
  EXPECT_FALSE(assembler->Add(0, 0, "").ok());       // Would never end.
  EXPECT_TRUE(assembler->Add(0, 0, "abcd").ok());
  EXPECT_FALSE(assembler->Add(0, 0, "abcd").ok());  // Repeated.
  EXPECT_TRUE(assembler->Add(1, 0, "ef").ok());
  EXPECT_FALSE(assembler->Add(1, 2, "g").ok());  // After the end.
  EXPECT_EQ(std::move(*assembler).Take(), (std::vector<std::string>{"abcd", "ef"}));
}

// Promise: Memory is bounded.
TEST(ConvertTest, AssemblerRefusesDeclarationsOverTheLimit) {
  const v1::Tensor four = Header(v1::DTYPE_U8, {4});
  EXPECT_TRUE(ChunkAssembler::Start({four, four}, 8).ok());
  EXPECT_EQ(ChunkAssembler::Start({four, four}, 7).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(ChunkAssembler::Start({Header(v1::DTYPE_F64, {INT64_MAX, 3})}, 8).ok());
}

// A sender that changes its mind about a size would have the frames cut at other places.
// Promise: Any process draws an evaluation with the same bytes.
TEST(ComingPicturesTest, AllPiecesOfAPictureNameOneSize) {
  Image8 image{.width = 1 << 10, .height = 1 << 10, .channels = 3, .pixels = {}};
  image.pixels.resize(size_t{3} << 20, 7);
  const std::vector<v1::PicturePiece> pieces = InPieces(1, 0, {image});
  ASSERT_GT(pieces.size(), 1u);
  ComingPictures whole(0, 1);
  for (const v1::PicturePiece& piece : pieces) EXPECT_TRUE(whole.Add(piece).ok());
  EXPECT_TRUE(whole.complete());
  const auto other = [&](void (*change)(v1::PicturePiece&)) {
    v1::PicturePiece piece = pieces[1];
    change(piece);
    ComingPictures coming(0, 1);
    EXPECT_TRUE(coming.Add(pieces[0]).ok());
    return coming.Add(piece);
  };
  EXPECT_TRUE(other([](v1::PicturePiece&) {}).ok());
  EXPECT_FALSE(other([](v1::PicturePiece& piece) { piece.set_frames(2); }).ok());
  EXPECT_FALSE(other([](v1::PicturePiece& piece) { piece.set_height(1 << 11); }).ok());
  EXPECT_FALSE(other([](v1::PicturePiece& piece) { piece.set_width(1 << 11); }).ok());
  EXPECT_FALSE(other([](v1::PicturePiece& piece) {
                 piece.set_height(3 << 10);
                 piece.set_channels(1);
               }).ok());
}

}  // namespace
}  // namespace oxbow::rpc
