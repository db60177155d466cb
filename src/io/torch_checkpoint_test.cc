// SPDX-License-Identifier: Apache-2.0
#include "io/torch_checkpoint.h"

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/weight_files.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_CHECKPOINT_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/checkpoints";
}

std::string BytesOf(const std::string& file) { return *ReadFile(Goldens() / file); }

// Each NAME.pt beside NAME.safetensors.
std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(Goldens())) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem());
  }
  return names;
}

TEST(TorchCheckpointTest, HoldsTheTensorsThatTorchLoads) {
  EXPECT_GE(Names().size(), 4u);
  for (const std::string& name : Names()) {
    const std::string file = BytesOf(name + ".pt");
    const auto checkpoint = TorchCheckpoint::Parse(file, name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto golden = ReadSafetensors(Goldens() / (name + ".safetensors"));
    ASSERT_TRUE(golden.ok()) << golden.status();
    EXPECT_EQ(checkpoint->headers().size(), golden->tensors.size()) << name;
    for (const auto& [tensor, bytes] : golden->tensors) {
      ASSERT_TRUE(checkpoint->headers().contains(tensor)) << name << " " << tensor;
      const TensorHeader& header = checkpoint->headers().at(tensor);
      EXPECT_EQ(header.dtype, bytes.dtype) << name << " " << tensor;
      EXPECT_EQ(header.shape, bytes.shape) << name << " " << tensor;
      EXPECT_TRUE(checkpoint->Read(tensor) == bytes.data) << name << " " << tensor;
    }
  }
}

TEST(TorchCheckpointTest, SkipsAndNamesWhatIsNoTensor) {
  const std::string wrapped = BytesOf("checkpoint.pt"), plain = BytesOf("mlp.pt");
  EXPECT_THAT(TorchCheckpoint::Parse(wrapped, "")->skipped(), ElementsAre("steps"));
  EXPECT_THAT(TorchCheckpoint::Parse(plain, "")->skipped(), IsEmpty());
}

TEST(TorchCheckpointTest, CodeAndOtherObjectsAreRefusedByName) {
  const auto messages = nlohmann::json::parse(BytesOf("refused.json"));
  EXPECT_GE(messages.size(), 13u);
  for (const auto& [name, part] : messages.items()) {
    const std::string file = BytesOf("refused_" + name + ".pt");
    const absl::Status status = TorchCheckpoint::Parse(file, "file.pt").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part.get<std::string>()));
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("file.pt: "));
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  }
}

TEST(TorchCheckpointTest, EveryTruncationIsAnError) {
  for (const std::string& name : {std::string("mlp"), std::string("views")}) {
    const std::string file = BytesOf(name + ".pt");
    for (size_t length = 0; length < file.size(); length += length < 200 ? 1 : 37) {
      EXPECT_FALSE(TorchCheckpoint::Parse(std::string_view(file).substr(0, length), "").ok())
          << name << " " << length;
    }
  }
}

// A pickle in place of that of mlp.pt, of the same length: what follows its end is not looked at.
absl::Status StatusOf(const std::string& pickle) {
  std::string file = BytesOf("mlp.pt");
  const size_t at = file.find("\x80\x02");
  file.replace(at, pickle.size(), pickle);
  return TorchCheckpoint::Parse(file, "").status();
}

const std::string kStart("\x80\x02", 2);

std::string Text(const std::string& text) {
  return "X" + std::string(1, static_cast<char>(text.size())) + std::string(3, '\0') + text;
}

// A view of the storage of `layers.0.bias`, which has 16 numbers.
std::string View(const std::string& numbers) {
  return kStart + "}" + Text("w") + "ctorch._utils\n_rebuild_tensor_v2\n((" + Text("storage") +
         "ctorch\nFloatStorage\n" + Text("1") + Text("cpu") + "K\x10tQ" + numbers +
         "\x89"
         "ccollections\nOrderedDict\n)RtRs.";
}

std::string Byte(int value) { return {'K', static_cast<char>(value)}; }

TEST(TorchCheckpointTest, AViewMustLieWithinItsStorage) {
  const auto view = [](int offset, int size, int stride) {
    return View(Byte(offset) + "(" + Byte(size) + "t(" + Byte(stride) + "t");
  };
  EXPECT_EQ(StatusOf(view(0, 16, 1)), absl::OkStatus());
  EXPECT_EQ(StatusOf(view(1, 8, 2)), absl::OkStatus());
  for (const std::string& outside :
       {view(0, 17, 1), view(1, 16, 1), view(2, 8, 2), view(16, 1, 1), view(0, 17, 0)}) {
    EXPECT_EQ(StatusOf(outside).code(), absl::StatusCode::kDataLoss);
  }
  const std::string most = "J\xff\xff\xff\x7f";
  EXPECT_EQ(StatusOf(View(Byte(0) + "(" + most + most + most + most + "t(" + Byte(0) + Byte(0) +
                          Byte(0) + Byte(0) + "t"))
                .code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(StatusOf(View(Byte(0) + "(J\xff\xff\xff\xfft(" + Byte(1) + "t")).code(),
            absl::StatusCode::kDataLoss);  // A size of -1.
}

TEST(TorchCheckpointTest, AMalformedPickleIsAnError) {
  for (const std::string& pickle :
       {kStart + ".", kStart + "u.", kStart + "(u.", kStart + "}(K\x01u.", kStart + "K\x01K\x02s.",
        kStart + "h\x05.", kStart + "R.", kStart + "}K\x01R.", kStart + "}}.", kStart + "(}.",
        kStart + "X\xff\xff\xff\x7f", kStart + "}}b}b.", kStart + "NQ.", kStart + "\x8a\x09"}) {
    const absl::Status status = StatusOf(pickle);
    EXPECT_FALSE(status.ok()) << pickle;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  }
}

// A dict that holds itself, and one that is reached a thousand times.
TEST(TorchCheckpointTest, CirclesDoNotHang) {
  EXPECT_FALSE(StatusOf(kStart + "}q\x01" + Text("state_dict") + "h\x01s.").ok());
  std::string nest = kStart + "}";
  for (int i = 0; i < 200; ++i) nest += "(";
  EXPECT_FALSE(StatusOf(nest + ".").ok());
}

TEST(TorchCheckpointTest, ConvertsToSafetensors) {
  const fs::path to = fs::path(::testing::TempDir()) / "converted.safetensors";
  const auto converted = ConvertTorchCheckpoint(Goldens() / "views.pt", to);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto ours = ReadSafetensors(to), golden = ReadSafetensors(Goldens() / "views.safetensors");
  ASSERT_TRUE(ours.ok()) << ours.status();
  EXPECT_EQ(converted->tensors, golden->tensors.size());
  for (const auto& [name, tensor] : golden->tensors) {
    EXPECT_TRUE(ours->tensors.at(name).data == tensor.data) << name;
  }
  fs::remove(to);
  EXPECT_FALSE(ConvertTorchCheckpoint(Goldens() / "refused_code.pt", to).ok());
  EXPECT_FALSE(fs::exists(to));
  EXPECT_EQ(ConvertTorchCheckpoint(Goldens() / "absent.pt", to).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace oxbow::io
