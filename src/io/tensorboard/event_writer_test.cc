// SPDX-License-Identifier: Apache-2.0
#include "io/tensorboard/event_writer.h"

#include <cmath>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "base/checksum.h"
#include "gtest/gtest.h"

namespace oxbow::io {
namespace {

// Framed events made by the tensorboard package: tools/make_event_golden.py.
constexpr char kVersion[] =
    "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d";
constexpr char kScalars[] =
    "3a000000000000001295eae20900001040fc54d94110ac022a2c0a170a106576616c2f7265776172"
    "645f6d65616e150000783f0a110a0a747261696e2f6c6f73731517b7d1b843dc8965";
constexpr char kText[] =
    "3500000000000000d6c55de60900001040fc54d9412a2a0a280a06636f6e66696742120807120412"
    "020801420823206469676974734a0a0a060a0474657874200232542c42";
constexpr char kImage[] =
    "2300000000000000b09f77430900001040fc54d94110072a160a140a057368656574220b08081014"
    "18032203504e471f746fca";
constexpr char kHyper[] =
    "8300000000000000b3b191e90900001040fc54d9412a780a760a1c5f68706172616d735f2f736573"
    "73696f6e5f73746172745f696e666f42060801120212004a4e0a4c0a0768706172616d7312411a3f"
    "0a150a0b6d6574686f642e6e616d6512061a046772706f0a150a0872756e2e736565641209110000"
    "000000000840220672756e732f612900001040fc54d9419635b675";
constexpr char kRestart[] = "0f000000000000006d532b090900001040fc54d941101a3a020801ec5cd644";

constexpr double kTime = 1700000000.25;
const EventFileName kName{1700000000, "host", 42};

std::filesystem::path EmptyDirectory(const std::string& name) {
  const auto directory = std::filesystem::path(::testing::TempDir()) / "event_writer_test" / name;
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  return directory;
}

TEST(EventWriterTest, EveryEventHasTheBytesOfTheTensorboardPackage) {
  EventWriter writer(EmptyDirectory("golden"), kName);
  std::string expected = absl::HexStringToBytes(kVersion);
  const auto expect_appended = [&](const absl::Status& status, const char* golden) {
    ASSERT_TRUE(status.ok()) << status;
    expected += absl::HexStringToBytes(golden);
    EXPECT_EQ(absl::BytesToHexString(*ReadFile(writer.path())), absl::BytesToHexString(expected));
  };
  expect_appended(
      writer.Scalars({kTime, 300}, {{"eval/reward_mean", 0.96875}, {"train/loss", -1e-4}}),
      kScalars);
  expect_appended(writer.Text({kTime, 0}, "config", "# digits"), kText);
  expect_appended(writer.Image({kTime, 7}, "sheet", {20, 8, "PNG"}), kImage);
  expect_appended(
      writer.HyperParameters({kTime, 0}, "runs/a", {{"method.name", "grpo"}, {"run.seed", 3.0}}),
      kHyper);
  expect_appended(writer.Restart({kTime, 26}), kRestart);
}

TEST(EventWriterTest, EveryStartWritesAFileOfItsOwnOnceItHasNumbers) {
  const auto directory = EmptyDirectory("starts");
  for (int start = 0; start < 3; ++start) {
    EventWriter writer(directory, kName);
    ASSERT_TRUE(writer.Restart({kTime, 26}).ok());
    ASSERT_TRUE(writer.Text({kTime, 0}, "config", "# digits").ok());
    if (start == 1) continue;  // It fails before its first step.
    ASSERT_TRUE(writer.Scalars({kTime, 300}, {{"a", 1}}).ok());
    EXPECT_EQ(writer.path().filename(),
              "events.out.tfevents.1700000000.host.42." + std::to_string(start / 2));
    const std::string begin = absl::HexStringToBytes(kVersion) + absl::HexStringToBytes(kRestart) +
                              absl::HexStringToBytes(kText);
    EXPECT_EQ(ReadFile(writer.path())->substr(0, begin.size()), begin);
  }
}

TEST(EventWriterTest, AMissingDirectoryIsAnErrorThatNamesThePath) {
  EventWriter writer(EmptyDirectory("none") / "missing", kName);
  const absl::Status status = writer.Scalars({kTime, 300}, {{"a", 1}});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("missing"), std::string::npos);
}

TEST(RecordTest, ChecksumsMatchPublishedVectors) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

}  // namespace
}  // namespace oxbow::io
