// SPDX-License-Identifier: Apache-2.0
// `oxbow replay` against a real buffer process, and against its directory after the process has
// stopped.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>

#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/image.h"
#include "io/picture_file.h"
#include "io/safetensors.h"
#include "nlohmann/json.hpp"
#include "run/prompt.h"
#include "services/buffer/replay_client.h"
#include "tests/integration/oxbow_command.h"
#include "tests/testing/photo_like.h"
#include "tests/testing/process.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr uint64_t kEntries = 7;

Image8 Picture() { return PhotoLike(16, 16, 1); }

// Three latents of one channel, 16 x 16; entry n has the reward n / 10 and holds 1000 + n.
v1::ReplayEntry EntryOf(uint64_t id) {
  v1::ReplayEntry entry;
  entry.set_entry_id(id);
  *entry.mutable_prompt() = run::MakePrompt("text " + std::to_string(id), "{}");
  entry.set_raw_reward(static_cast<double>(id) / 10);
  for (const double sigma : {1.0, 0.5, 0.0}) entry.add_sigmas(sigma);
  v1::Trajectory& trajectory = *entry.mutable_trajectory();
  for (int step = 0; step < 2; ++step) {
    trajectory.add_log_prob(-1.0f);
    trajectory.add_sde(true);
    trajectory.add_behaviour_version(0);
  }
  v1::Tensor& latents = *trajectory.mutable_latents();
  latents.set_dtype(v1::DTYPE_F32);
  for (const int64_t size : {3, 1, 16, 16}) latents.add_shape(size);
  const std::vector<float> numbers(3 * 16 * 16, 1000.0f + static_cast<float>(id));
  latents.set_data(numbers.data(), numbers.size() * sizeof(float));
  trajectory.set_picture(io::PreviewOf({Picture()}));
  return entry;
}

class ReplayCommandTest : public ::testing::Test {
 protected:
  ReplayCommandTest() { Start(); }

  void Start() {
    buffer_ = Process::Start({.argv = {BinaryPath("replay_buffer"), "--data", data()}}).value();
    const auto ready = buffer_->WaitForLine("READY", kPatience);
    ASSERT_TRUE(ready.ok()) << ready.status();
    endpoint_ = ValueOf(*ready, "grpc");
  }
  void Stop() {
    buffer_->Kill(SIGTERM);
    ASSERT_EQ(buffer_->WaitExit(kPatience).value(), 0);
  }
  // Entries 1 to 7; step 0 is committed and used entry 3.
  void Fill() {
    buffer::ReplayClient client(endpoint_, kPatience);
    std::vector<v1::ReplayEntry> entries;
    for (uint64_t id = 1; id <= kEntries; ++id) entries.push_back(EntryOf(id));
    ASSERT_TRUE(client.Offer(Epoch(1), entries).ok());
    ASSERT_TRUE(client.Advance(Epoch(1), LearnerStep(0), {EntryId(3)}, {}).ok());
  }
  std::string data() const { return scratch_.path() / "data"; }

  Outcome Replay(const std::string& verb, bool live, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"replay", verb};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {live ? "--buffer" : "--data", live ? endpoint_ : data()});
    return RunOxbow(arguments);
  }

  const ScopedDirectory scratch_;
  std::unique_ptr<Process> buffer_;
  std::string endpoint_;
};

TEST_F(ReplayCommandTest, ShowsTheSameOfALiveBufferAndOfItsDirectory) {
  Fill();
  EXPECT_EQ(Replay("list", /*live=*/false).exit_code, 3) << "a process holds it";
  std::map<bool, nlohmann::json> lists;
  std::map<bool, nlohmann::json> entries;
  for (const bool live : {true, false}) {
    if (!live) Stop();
    const Outcome list = Replay("list", live, {"--format", "json", "--sort", "uses"});
    ASSERT_EQ(list.exit_code, 0) << list.message;
    lists[live] = nlohmann::json::parse(list.output);
    EXPECT_EQ(lists[live]["entries"], kEntries);
    EXPECT_EQ(lists[live]["rows"][0]["entry"], "3") << "the only one that was used, once";
    EXPECT_EQ(lists[live]["rows"][0]["uses"], 1);
    EXPECT_EQ(lists[live]["rows"][0]["age_steps"], 1);
    const Outcome text = Replay("list", live, {"--limit", "2"});
    EXPECT_THAT(text.output, AllOf(HasSubstr("text 7"), HasSubstr("text 6"),
                                   Not(HasSubstr("text 5")), HasSubstr("2 of 7")));
    const Outcome show = Replay("show", live, {"5", "--format", "json"});
    ASSERT_EQ(show.exit_code, 0) << show.message;
    entries[live] = nlohmann::json::parse(show.output);
    EXPECT_EQ(entries[live]["latents"][2]["mean"], 1005.0);
    EXPECT_EQ(entries[live]["picture"]["width"], 16);
    EXPECT_THAT(Replay("show", live, {"5"}).output, HasSubstr("png 16 x 16"));
    EXPECT_EQ(Replay("show", live, {"99"}).exit_code, 4) << "no such entry";
    const Outcome verify = Replay("verify", live);
    EXPECT_EQ(verify.exit_code, 0) << verify.output;
    EXPECT_THAT(verify.output, HasSubstr("7 entries"));
  }
  // The decay belongs to the run, not to the directory: without a config there is no priority.
  for (nlohmann::json& row : lists[true]["rows"]) row["priority"] = nullptr;
  entries[true]["priority"] = nullptr;
  EXPECT_EQ(lists[true]["rows"], lists[false]["rows"]);
  EXPECT_EQ(entries[true], entries[false]);
  EXPECT_EQ(Replay("list", /*live=*/true).exit_code, 3) << "nobody answers";
}

// Promise: Inspection changes nothing. `oxbow replay` on a live buffer changes no use, age or
// content. On a directory it writes no byte, and it never reads while a process holds the
// directory.
TEST_F(ReplayCommandTest, LookingLeavesNoTrace) {
  Fill();
  buffer::ReplayClient client(endpoint_, kPatience);
  const auto told = [&] {
    v1::InfoResponse info = client.Info().value();
    info.clear_unix_time();
    info.clear_disk_free_bytes();
    std::string all = info.SerializeAsString();
    const auto entries = client.List("").value();
    for (const v1::ReplayEntry& entry : entries) all += entry.SerializeAsString();
    return all;
  };
  const std::string before = told();
  for (const char* verb : {"list", "verify"}) ASSERT_EQ(Replay(verb, true).exit_code, 0);
  ASSERT_EQ(Replay("show", true, {"3"}).exit_code, 0);
  ASSERT_EQ(Replay("export", true, {"3", "--out", scratch_.path()}).exit_code, 0);
  EXPECT_EQ(told() == before, true);
}

// Promise: The page shows the pictures that replay keeps.
TEST_F(ReplayCommandTest, ExportsThePictureAndAStripOfTheSteps) {
  Fill();
  const fs::path out = scratch_.path() / "out";
  const Outcome outcome = Replay("export", true, {"5", "--out", out});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.message;
  std::ifstream file(out / "entry_5.png", std::ios::binary);
  const std::string png((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto image = io::DecodePng(png);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_GT(image->width, 2 * image->height) << "three steps side by side";
  EXPECT_EQ(*io::DecodePng(*ReadFile(out / "entry_5.picture.png")), Picture());
  std::ifstream json(out / "entry_5.json");
  EXPECT_EQ(nlohmann::json::parse(json)["entry"], "5");
  const auto arrays = io::ReadSafetensors(out / "entry_5.safetensors");
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  const io::TensorBytes& latents = arrays->tensors.at("latents");
  ASSERT_EQ(latents.shape, (std::vector<int64_t>{3, 1, 16, 16}));
  EXPECT_EQ(latents.data, EntryOf(5).trajectory().latents().data());
}

// A path of videos: three latents [1, 2, 4, 8] whose numbers all differ.
// Promise: A model of videos trains.
TEST_F(ReplayCommandTest, TheFramesOfAVideoComeBackAsTheyWereOffered) {
  v1::ReplayEntry entry = EntryOf(1);
  v1::Tensor& latents = *entry.mutable_trajectory()->mutable_latents();
  latents.clear_shape();
  for (const int64_t size : {3, 1, 2, 4, 8}) latents.add_shape(size);
  std::vector<float> numbers(3 * 2 * 4 * 8);
  std::iota(numbers.begin(), numbers.end(), 0.5f);
  latents.set_data(numbers.data(), numbers.size() * sizeof(float));
  buffer::ReplayClient client(endpoint_, kPatience);
  ASSERT_TRUE(client.Offer(Epoch(1), {entry}).ok());
  ASSERT_TRUE(client.Advance(Epoch(1), LearnerStep(0), {}, {}).ok());
  for (const bool live : {true, false}) {
    if (!live) Stop();
    EXPECT_EQ(Replay("verify", live).exit_code, 0);
    EXPECT_THAT(Replay("show", live, {"1"}).output, HasSubstr("[3, 1, 2, 4, 8]"));
    const fs::path out = scratch_.path() / (live ? "live" : "stopped");
    ASSERT_EQ(Replay("export", live, {"1", "--out", out}).exit_code, 0);
    const auto arrays = io::ReadSafetensors(out / "entry_1.safetensors");
    ASSERT_TRUE(arrays.ok()) << arrays.status();
    EXPECT_EQ(arrays->tensors.at("latents").shape, (std::vector<int64_t>{3, 1, 2, 4, 8}));
    EXPECT_EQ(arrays->tensors.at("latents").data, latents.data());
    const auto strip = io::DecodePng(*ReadFile(out / "entry_1.png"));
    ASSERT_TRUE(strip.ok()) << strip.status();
    EXPECT_LT(strip->width, 2 * strip->height) << "two frames wide, three latents high";
  }
}

// A flipped byte on disk is found in the directory, and by the process that serves it.
// Promise: Verification names the damage.
TEST_F(ReplayCommandTest, VerifyNamesTheDamagedEntry) {
  Fill();
  {
    buffer::ReplayClient client(endpoint_, kPatience);
    ASSERT_TRUE(client.Checkpoint(Epoch(1), "flushed", 1).ok());  // Entries are in files now.
  }
  Stop();
  const float number = 1004.0f;
  const std::string mark(reinterpret_cast<const char*>(&number), sizeof number);
  int damaged = 0;
  for (const auto& file : fs::directory_iterator(fs::path(data()) / "live-000001")) {
    std::fstream stream(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(stream)),
                            std::istreambuf_iterator<char>());
    const size_t at = bytes.find(mark + mark);
    if (file.path().extension() == ".log" || at == std::string::npos) continue;
    stream.clear();
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put('\x11');
    ++damaged;
  }
  ASSERT_EQ(damaged, 1);
  for (const bool live : {false, true}) {
    if (live) Start();
    const Outcome verify = Replay("verify", live);
    EXPECT_EQ(verify.exit_code, 4);
    EXPECT_THAT(verify.output, AllOf(HasSubstr("entry 4 (best): latent"), HasSubstr("1 damaged"),
                                     Not(HasSubstr("entry 3"))));
  }
}

}  // namespace
}  // namespace oxbow::testing
