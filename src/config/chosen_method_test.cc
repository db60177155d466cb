// SPDX-License-Identifier: Apache-2.0
// Every method has a name in the schema, a valid config, and a section that its rules can read.
#include "config/chosen_method.h"

#include <gtest/gtest.h>

#include <vector>

#include "config/run_config.h"
#include "config/validate.h"
#include "config/yaml_message.h"

namespace oxbow::config {
namespace {

// A valid run of `method`.
ResolvedConfig RunOf(const rl::MethodFacts& method) {
  const double clip = method.clip.usual_max > 0 ? method.clip.usual_max : method.clip.max;
  std::vector<std::string> set = {"recipe=digits-op-grpo",
                                  absl::StrCat("method.name=", method.name),
                                  absl::StrCat("method.clip_range=", clip)};
  if (!method.needs_density()) {
    set.insert(set.end(), {"replay.fraction=0", "sampling.dynamics=ode", "method.times.times=group",
                           "method.times.noise=group"});
  }
  return LoadRunConfig({}, set, {}).value();
}

TEST(ChosenMethodTest, RowsAreTheNamesOfTheSchema) {
  const auto& names = *v1::MethodName_descriptor();
  ASSERT_EQ(names.value_count(), static_cast<int>(rl::AllMethods().size()) + 1);
  for (int i = 1; i < names.value_count(); ++i) {
    const rl::MethodFacts& facts = rl::AllMethods()[static_cast<size_t>(i - 1)];
    EXPECT_EQ(names.value(i)->number(), i);
    EXPECT_EQ(EnumText(*names.value(i)), facts.name);
    v1::MethodConfig method;
    method.set_name(static_cast<v1::MethodName>(i));
    EXPECT_EQ(&ChosenMethod(method), &facts);
  }
}

TEST(ChosenMethodTest, EveryMethodHasAConfigThatValidates) {
  for (const rl::MethodFacts& method : rl::AllMethods()) {
    const ResolvedConfig run = RunOf(method);
    EXPECT_EQ(ChosenMethod(run.config.method()).name, method.name);
    for (const Problem& problem : Validate(run.config)) {
      ADD_FAILURE() << method.name << ": " << ProblemLine(problem, run.provenance);
    }
  }
}

TEST(ChosenMethodTest, OwnSettingsAreNumbers) {
  v1::MethodConfig method;
  method.set_name(v1::METHOD_NAME_AWM);
  method.mutable_awm()->set_weighting(v1::AWM_WEIGHTING_HUBER);
  const std::map<std::string, double> want = {{"weighting", 3}, {"ratio", 0}};
  EXPECT_EQ(OwnSettings(method), want);
  method.set_name(v1::METHOD_NAME_GRPO);
  EXPECT_TRUE(OwnSettings(method).empty()) << "it has no section";
}

TEST(ChosenMethodTest, ListsNameTheMethodsThatAFactHoldsFor) {
  const auto one = [](const rl::MethodFacts& m) { return std::string(m.name) == "guard"; };
  EXPECT_EQ(MethodsThat(one, " and "), "guard");
  const auto family = [](const rl::MethodFacts& m) {
    const std::string name = m.name;
    return name == "nft" || name == "awm" || name == "v_grpo";
  };
  EXPECT_EQ(MethodsThat(family, " and "), "nft, awm and v_grpo");
  EXPECT_EQ(MethodsThat(family, ", "), "nft, awm, v_grpo");
}

}  // namespace
}  // namespace oxbow::config
