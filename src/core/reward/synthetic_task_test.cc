// SPDX-License-Identifier: Apache-2.0
#include "core/reward/synthetic_task.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace oxbow::reward {
namespace {

class Colours final : public SyntheticTask {
 public:
  std::string name() const override { return "colours"; }
  ImageFormat format() const override { return {.width = 2, .height = 3, .channels = 3}; }
  std::vector<TaskReward> rewards() const override { return {{"red", nullptr}, {"hue", nullptr}}; }
  std::string layout_reward() const override { return "hue"; }
  bool grey_is_dust() const override { return false; }
  bool HasPrompt(const std::string& prompt) const override { return prompt == "a red wall"; }
  std::unique_ptr<TaskReport> NewReport() const override { return nullptr; }
  absl::StatusOr<bool> IsRight(const std::string&, std::span<const uint8_t>) const override {
    return true;
  }
};

// This program links no world.
TEST(SyntheticTaskTest, AProgramHasTheTasksThatWereAddedToIt) {
  const std::vector<std::string> names = {"ocr", "hue"};
  EXPECT_TRUE(AllTasks().empty());
  EXPECT_EQ(TaskOfPrompt("text 473"), nullptr);
  EXPECT_EQ(TaskOfRewards(names), nullptr);
  EXPECT_FALSE(SaysLayout("hue"));

  static const Colours colours;
  AddTask(colours);
  EXPECT_EQ(AllTasks(), std::vector<const SyntheticTask*>{&colours});
  EXPECT_EQ(TaskOfPrompt("a red wall"), &colours);
  EXPECT_EQ(TaskOfPrompt("text 473"), nullptr);
  EXPECT_EQ(TaskOfRewards(names), &colours);
  EXPECT_TRUE(SaysLayout("hue"));
  EXPECT_FALSE(SaysLayout("red"));
  EXPECT_FALSE(SaysLayout("")) << "a task without such a reward says so";
}

}  // namespace
}  // namespace oxbow::reward
