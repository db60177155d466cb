// SPDX-License-Identifier: Apache-2.0
#include "core/reward/html_text.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/golden/reward_golden.h"

namespace oxbow::reward {
namespace {

TEST(HtmlTextTest, EveryNameAndManyOddTextsAreReadAsByPython) {
  const auto golden = nlohmann::json::parse(*ReadFile(RewardGolden("html_text.json")));
  ASSERT_GE(golden["cases"].size(), 2800u);
  for (const auto& item : golden["cases"]) {
    EXPECT_EQ(UnescapeHtml(item[0].get<std::string>()), item[1]) << item[0];
  }
}

TEST(HtmlTextTest, TextWithoutReferencesStays) {
  for (const char* const text :
       {"", "plain", "a & b", "&", "&;", "AT&T", "\xE4\xBD\xA0 & \xC3\xA9"}) {
    EXPECT_EQ(UnescapeHtml(text), text);
  }
}

}  // namespace
}  // namespace oxbow::reward
