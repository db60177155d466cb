// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/weight_files.h"

namespace oxbow::io {
namespace {

using ::testing::HasSubstr;

std::string FileOf(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

std::string EntryOf(const char* name, const char* dtype, const char* shape, int begin, int end) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":[", begin, ",", end, "]}");
}

Safetensors Sample() {
  Safetensors content;
  content.metadata = {{"run", "seven"}};
  content.tensors["z.weight"] = {DType::kF32, {2, 3}, std::string(24, 'z')};
  content.tensors["a.mask"] = {DType::kU8, {5}, std::string(5, 'a')};
  content.tensors["b.ids"] = {DType::kI64, {1}, std::string(8, 'b')};
  content.tensors["c.empty"] = {DType::kF32, {0, 4}, ""};
  content.tensors["d.scalar"] = {DType::kBF16, {}, "dd"};
  return content;
}

TEST(SafetensorsTest, ReadsBackWhatWasWritten) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "round_trip.safetensors";
  ASSERT_TRUE(WriteSafetensors(path, Sample()).ok());
  const auto back = ReadSafetensors(path);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->metadata.at("run"), "seven");
  EXPECT_EQ(back->metadata.at("format"), "pt");
  ASSERT_EQ(back->tensors.size(), 5u);
  for (const auto& [name, tensor] : Sample().tensors) {
    EXPECT_EQ(back->tensors.at(name).data, tensor.data) << name;
    EXPECT_EQ(back->tensors.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(back->tensors.at(name).dtype, tensor.dtype) << name;
  }
}

TEST(SafetensorsTest, WritesWideTensorsFirstAndAlignsData) {
  const std::string bytes = SerializeSafetensors(Sample());
  const uint64_t header =
      static_cast<unsigned char>(bytes[0]) + 256u * static_cast<unsigned char>(bytes[1]);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(bytes.substr(8 + header),
            "bbbbbbbb"
            "zzzzzzzzzzzzzzzzzzzzzzzz"
            "dd"
            "aaaaa");
}

TEST(SafetensorsTest, EveryTruncationIsDataLoss) {
  const std::string whole = SerializeSafetensors(Sample());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(ParseSafetensors(whole.substr(0, size), "f").status().code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
}

TEST(SafetensorsTest, NeverCrashesOnFlippedBytes) {
  const std::string whole = SerializeSafetensors(Sample());
  std::mt19937 random(20260101);  // Seed of the corruption.
  for (int round = 0; round < 20'000; ++round) {
    std::string broken = whole;
    for (int flips = 0; flips < 3; ++flips) {
      broken[random() % broken.size()] = static_cast<char>(random());
    }
    const auto parsed = ParseSafetensors(broken, "f");
    if (!parsed.ok()) continue;
    for (const auto& [name, tensor] : parsed->tensors) EXPECT_TRUE(Validate(tensor).ok()) << name;
  }
}

struct Lie {
  const char* what;
  std::string header;
  std::string data;
  const char* message;
};

TEST(SafetensorsTest, LyingHeadersAreRefusedByName) {
  const std::string eight(8, 'x');
  const std::vector<Lie> lies = {
      {"hole", "{" + EntryOf("a", "F32", "[1]", 4, 8) + "}", eight, "'a'"},
      {"overlap",
       "{" + EntryOf("a", "F32", "[2]", 0, 8) + "," + EntryOf("b", "F32", "[1]", 4, 8) + "}", eight,
       "'b'"},
      {"past the end", "{" + EntryOf("a", "F32", "[4]", 0, 16) + "}", eight, "'a'"},
      {"backwards", "{" + EntryOf("a", "F32", "[1]", 8, 4) + "}", eight, "'a'"},
      {"wrong size", "{" + EntryOf("a", "F32", "[3]", 0, 8) + "}", eight, "'a'"},
      {"huge shape", "{" + EntryOf("a", "F32", "[4611686018427387904,4]", 0, 8) + "}", eight,
       "'a'"},
      {"negative shape", "{" + EntryOf("a", "F32", "[-2]", 0, 8) + "}", eight, "'a'"},
      {"fraction", "{" + EntryOf("a", "F32", "[2.0]", 0, 8) + "}", eight, "'a'"},
      {"unread bytes", "{" + EntryOf("a", "F32", "[1]", 0, 4) + "}", eight, "8 data bytes"},
      {"duplicate",
       "{" + EntryOf("a", "F32", "[1]", 0, 4) + "," + EntryOf("a", "F32", "[1]", 4, 8) + "}", eight,
       "duplicate"},
      {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", eight, "'a'"},
      {"entry is a number", R"({"a":7})", "", "'a'"},
      {"metadata is a list", R"({"__metadata__":[]})", "", "__metadata__"},
      {"metadata value", R"({"__metadata__":{"k":1}})", "", "__metadata__"},
      {"list", "[]", "", "JSON object"},
      {"leading space", " {}", "", "JSON object"},
      {"cut JSON", "{", "", "JSON object"},
      {"no header", "", "", "JSON object"},
  };
  for (const Lie& lie : lies) {
    const auto status =
        ParseSafetensors(FileOf(lie.header, lie.data), "model.safetensors").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << lie.what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(lie.message)) << lie.what;
    EXPECT_THAT(std::string(status.message()), HasSubstr("model.safetensors")) << lie.what;
  }
}

// Promise: Memory is bounded.
TEST(SafetensorsTest, AHeaderLengthBeyondTheFileAllocatesNothing) {
  const std::string bytes = std::string(7, '\xff') + '\x7f' + "{}";
  EXPECT_EQ(ParseSafetensors(bytes, "f").status().code(), absl::StatusCode::kDataLoss);
}

TEST(SafetensorsTest, NamesUnsupportedDTypesAndMissingFiles) {
  const auto exotic =
      ParseSafetensors(
          FileOf("{" + EntryOf("a", "F8_E4M3", "[8]", 0, 8) + "}", std::string(8, 'x')), "f")
          .status();
  EXPECT_EQ(exotic.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(exotic.message()), HasSubstr("F8_E4M3"));
  EXPECT_EQ(ReadSafetensors("/nowhere/x.safetensors").status().code(), absl::StatusCode::kNotFound);
}

// One tensor of 4 GiB and 4 bytes beside a small one; its bytes are a hole, in memory and on disk.
TEST(SafetensorsTest, AFileOfMoreThanFourGibibytesIsStreamedAndMapped) {
  constexpr uint64_t kLarge = (uint64_t{4} << 30) + 4;
  void* const hole =
      mmap(nullptr, kLarge, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  const std::map<std::string, TensorHeader> headers = {
      {"large", {.dtype = DType::kF32, .shape = {static_cast<int64_t>(kLarge / 4)}}},
      {"small", {.dtype = DType::kU8, .shape = {3}}}};
  const auto path = std::filesystem::path(::testing::TempDir()) / "large.safetensors";
  std::ofstream file(path, std::ios::binary);
  const absl::Status status = StreamSafetensors(
      headers, {},
      [&](const std::string& name, const WriteBytes& write) {
        if (name == "small") return write("abc");
        return write(std::string_view(static_cast<const char*>(hole), kLarge));
      },
      [&](std::string_view piece) {
        if (piece.data() == hole) {
          file.seekp(static_cast<std::streamoff>(piece.size()), std::ios::cur);
        } else {
          file << piece;
        }
        return absl::OkStatus();
      });
  file.close();
  munmap(hole, kLarge);
  ASSERT_TRUE(status.ok()) << status;
  const auto files = WeightFiles::OpenFile(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->headers().at("large").shape, headers.at("large").shape);
  EXPECT_EQ(files->BytesOf("large").size(), kLarge);
  EXPECT_EQ(files->BytesOf("small"), "abc");
}

}  // namespace
}  // namespace oxbow::io
