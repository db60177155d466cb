// SPDX-License-Identifier: Apache-2.0
// Sizes in the config.json of a published encoder.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"

namespace oxbow::model {

template <typename Params>
struct SizeKey {
  const char* key;
  int64_t Params::*member;
  int64_t least = 1;
};

// Sets the members whose keys are there and not null. kInvalidArgument, in the words of the config
// `whose`, names the key that is no whole number from its least to `most`.
template <typename Params, size_t n>
absl::Status ReadSizes(const nlohmann::json& json, const SizeKey<Params> (&keys)[n], int64_t most,
                       const char* whose, Params& params) {
  for (const SizeKey<Params>& key : keys) {
    if (!json.contains(key.key) || json[key.key].is_null()) continue;
    const auto& value = json[key.key];
    if (!value.is_number_integer() || value.template get<int64_t>() < key.least ||
        value.template get<int64_t>() > most) {
      return absl::InvalidArgumentError(
          absl::StrCat(whose, ": ", key.key, " is not a size: ", JsonText(value)));
    }
    params.*key.member = value.template get<int64_t>();
  }
  return absl::OkStatus();
}

}  // namespace oxbow::model
