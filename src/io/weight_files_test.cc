// SPDX-License-Identifier: Apache-2.0
#include "io/weight_files.h"

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class WeightFilesTest : public ::testing::Test {
 protected:
  WeightFilesTest()
      : folder_(fs::path(::testing::TempDir()) /
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  // A file of one-byte tensors: the letter is the value.
  void Write(const std::string& file, const std::map<std::string, char>& tensors) {
    Safetensors content;
    for (const auto& [name, value] : tensors) {
      content.tensors[name] = {DType::kU8, {1}, std::string(1, value)};
    }
    ASSERT_TRUE(WriteSafetensors(folder_ / file, content).ok());
  }
  void Index(const std::string& file, const std::string& weight_map) {
    ASSERT_TRUE(WriteFileAtomically(folder_ / file, "{\"weight_map\":" + weight_map + "}").ok());
  }
  absl::Status Refusal() const { return WeightFiles::Open(folder_, "model").status(); }
  // Tensor names with their values.
  std::map<std::string, std::string> Content() const {
    const auto files = WeightFiles::Open(folder_, "model");
    EXPECT_TRUE(files.ok()) << files.status();
    std::map<std::string, std::string> content;
    if (!files.ok()) return content;
    for (const auto& [name, header] : files->headers()) {
      content[name] = std::string(files->BytesOf(name));
    }
    return content;
  }
  const fs::path folder_;
};

TEST_F(WeightFilesTest, TheIndexComesBeforeTheFileAndBothBeforeTheirFp16Variants) {
  EXPECT_EQ(Refusal().code(), absl::StatusCode::kNotFound);
  Write("model.fp16.safetensors", {{"a", '1'}});
  EXPECT_THAT(Content(), ElementsAre(Pair("a", "1")));
  Write("model.fp16-00001-of-00002.safetensors", {{"a", '2'}});
  Write("model.fp16-00002-of-00002.safetensors", {{"b", '2'}});
  Index("model.safetensors.index.fp16.json", R"({"a":"model.fp16-00001-of-00002.safetensors",)"
                                             R"("b":"model.fp16-00002-of-00002.safetensors"})");
  EXPECT_THAT(Content(), ElementsAre(Pair("a", "2"), Pair("b", "2")));
  Write("model.safetensors", {{"a", '3'}});
  EXPECT_THAT(Content(), ElementsAre(Pair("a", "3")));
  Write("model-00001-of-00001.safetensors", {{"a", '4'}});
  Index("model.safetensors.index.json", R"({"a":"model-00001-of-00001.safetensors"})");
  EXPECT_THAT(Content(), ElementsAre(Pair("a", "4")));
}

TEST_F(WeightFilesTest, AnIndexThatLiesIsRefusedByName) {
  Write("x-1.safetensors", {{"a", '1'}, {"b", '1'}});
  Write("x-2.safetensors", {{"c", '2'}});
  struct Lie {
    const char* weight_map;
    absl::StatusCode code;
    const char* message;
  };
  for (const Lie& lie : std::vector<Lie>{
           {R"({"a":"x-1.safetensors","d":"x-2.safetensors"})", absl::StatusCode::kDataLoss, "'d'"},
           {R"({"a":"x-1.safetensors","c":"x-1.safetensors"})", absl::StatusCode::kDataLoss, "'c'"},
           {R"({"c":"x-1.safetensors","a":"x-2.safetensors"})", absl::StatusCode::kDataLoss, "'a'"},
           {R"({"a":"../x-1.safetensors"})", absl::StatusCode::kDataLoss, "weight_map"},
           {R"({"a":7})", absl::StatusCode::kDataLoss, "weight_map"},
           {R"({})", absl::StatusCode::kDataLoss, "empty"},
           {R"([])", absl::StatusCode::kDataLoss, "weight_map"},
           {R"({"a":"x-3.safetensors"})", absl::StatusCode::kNotFound, "x-3.safetensors"}}) {
    Index("model.safetensors.index.json", lie.weight_map);
    EXPECT_EQ(Refusal().code(), lie.code) << lie.weight_map << ": " << Refusal();
    EXPECT_THAT(std::string(Refusal().message()), HasSubstr(lie.message)) << lie.weight_map;
  }
  Write("x-2.safetensors", {{"b", '2'}});
  Index("model.safetensors.index.json", R"({"a":"x-1.safetensors","b":"x-2.safetensors"})");
  EXPECT_THAT(std::string(Refusal().message()),
              AllOf(HasSubstr("'b'"), HasSubstr("x-1.safetensors"), HasSubstr("x-2.safetensors")));
}

TEST_F(WeightFilesTest, ATruncatedShardIsNamed) {
  Write("x-1.safetensors", {{"a", '1'}});
  Index("model.safetensors.index.json", R"({"a":"x-1.safetensors"})");
  fs::resize_file(folder_ / "x-1.safetensors", fs::file_size(folder_ / "x-1.safetensors") - 1);
  EXPECT_EQ(Refusal().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Refusal().message()), HasSubstr("x-1.safetensors"));
}

// A sparse file of a terabyte opens, and one of its tensors is read, in no time and memory.
TEST_F(WeightFilesTest, OnlyWhatIsAskedForIsRead) {
  constexpr uint64_t kHuge = uint64_t{1} << 39;
  std::string header =
      R"({"huge":{"dtype":"U8","shape":[549755813888],"data_offsets":[0,549755813888]},)"
      R"("small":{"dtype":"U8","shape":[2],"data_offsets":[549755813888,549755813890]}})";
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  const fs::path file = folder_ / "model.safetensors";
  ASSERT_TRUE(WriteFileAtomically(file, bytes + header).ok());
  std::error_code error;
  fs::resize_file(file, 8 + header.size() + kHuge + 2, error);
  if (error) GTEST_SKIP() << "no sparse files of this size here: " << error.message();
  const auto files = WeightFiles::Open(folder_, "model");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->BytesOf("small"), std::string(2, '\0'));
  EXPECT_EQ(files->BytesOf("huge").size(), kHuge);
  EXPECT_EQ(files->FileOf("huge"), file.string());
}

}  // namespace
}  // namespace oxbow::io
