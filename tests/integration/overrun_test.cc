// SPDX-License-Identifier: Apache-2.0
// A reward server in the memory that the manifests give it, whose scorer is slower than its
// callers: it says that it is busy, and is not killed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/channel.h"
#include "tests/testing/process.h"

namespace oxbow {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMemory = uint64_t{1} << 30;  // deploy/k8s/base/reward/server.yaml
constexpr int kCallers = 96;
constexpr int kPictures = 16;  // A call has 12 MiB.
constexpr int kOfMessage = 4;
constexpr uint32_t kSide = 512;

// A control group with this memory, where this machine lets one be made.
class MemoryGroup {
 public:
  MemoryGroup() {
    const bool version1 = fs::exists("/sys/fs/cgroup/memory");
    const fs::path root = version1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    const fs::path made = root / absl::StrCat("oxbow_test_", ::getpid());
    std::error_code error;
    if (!fs::create_directory(made, error)) return;
    directory_ = made;
    std::ofstream limit(made / (version1 ? "memory.limit_in_bytes" : "memory.max"));
    usable_ = static_cast<bool>(limit << kMemory << std::flush);
  }
  ~MemoryGroup() {
    std::error_code ignored;
    fs::remove(directory_, ignored);
  }
  bool usable() const { return usable_; }
  std::string processes() const { return (directory_ / "cgroup.procs").string(); }

 private:
  fs::path directory_;
  bool usable_ = false;
};

// A call as clients make it: no message is larger than 4 MiB, and the pictures that have no room in
// the first one follow.
std::vector<v1::ScoreRequest> Pictures(int seed) {
  std::string pixels(size_t{kSide} * kSide * 3, '\0');
  uint32_t state = static_cast<uint32_t>(seed) + 1;
  for (char& byte : pixels) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  std::vector<v1::ScoreRequest> requests(1);
  requests[0].mutable_prompt()->set_text("noise");
  for (int i = 0; i < kPictures; ++i) {
    v1::ScoreItem& item = *requests[0].add_items();
    item.set_item(static_cast<uint64_t>(i));
    item.mutable_image()->set_width(kSide);
    item.mutable_image()->set_height(kSide);
    item.mutable_image()->set_channels(3);
    item.mutable_image()->set_frames(1);
    item.mutable_image()->set_pixels_size(pixels.size());
    if (i < kOfMessage) {
      item.mutable_image()->set_pixels(pixels);
      continue;
    }
    if (i % kOfMessage == 0) requests.emplace_back();
    v1::ScoreItem& rest = *requests.back().add_items();
    rest.set_item(static_cast<uint64_t>(i));
    rest.mutable_image()->set_pixels(pixels);
  }
  return requests;
}

// Promise: Limits add up to less than the memory. Default limits of what waits, of caches and of
// gRPC's buffers are shares of the control group's memory, or the machine's. With what a program
// takes idle they are less than each manifest and compose file gives it. `oxbow train` divides the
// memory among its processes. `doctor` warns of a run whose limits add up to more. A reward server
// in 1 GiB that is asked for more than it scores says that it is busy, and is not killed.
TEST(OverrunTest, ARewardServerThatIsOverrunIsBusyAndNotKilled) {
  const MemoryGroup group;
  std::vector<std::string> environment;
  std::string into;
  if (group.usable()) {
    into = absl::StrCat("echo $$ > ", group.processes(), " && ");
  } else {
    environment.push_back(absl::StrCat("OXBOW_MEMORY_BYTES=", kMemory));
  }
  const auto server =
      testing::Process::Start(
          {.argv = {"/bin/sh", "-c",
                    absl::StrCat(into, "exec ", testing::BinaryPath("reward_server"),
                                 " --rewards jpeg_size --threads 1")},
           .environment = environment})
          .value();
  const std::string ready = server->WaitForLine("READY", absl::Seconds(60)).value();
  const auto stub = v1::Reward::NewStub(rpc::Connect(testing::ValueOf(ready, "grpc")));
  std::atomic<int> scored = 0, busy = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      const auto context = rpc::ContextWithDeadline(absl::Seconds(240));
      const auto call = stub->Score(context.get());
      for (const v1::ScoreRequest& request : Pictures(i)) {
        if (!call->Write(request)) break;
      }
      call->WritesDone();
      int answers = 0;
      for (v1::ScoreResponse response; call->Read(&response);) ++answers;
      const grpc::Status status = call->Finish();
      scored += status.ok() && answers == kPictures ? 1 : 0;
      busy += status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ? 1 : 0;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(server->running());
  EXPECT_LT(server->own_bytes_max(), kMemory);
  RecordProperty("own_bytes_max", std::to_string(server->own_bytes_max()));
  EXPECT_GT(scored, 0);
  EXPECT_GT(busy, 0);
  EXPECT_EQ(scored + busy, kCallers) << "no other answer";
  RecordProperty("scored", scored);
  server->Kill(SIGTERM);
  EXPECT_EQ(server->WaitExit(absl::Seconds(60)).value(), 0);
}

}  // namespace
}  // namespace oxbow
