// SPDX-License-Identifier: Apache-2.0
// The method that a config chooses: its facts, and its own section as numbers. No torch.
#pragma once

#include <map>
#include <string>

#include "core/rl/method_facts.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// Before defaults are resolved no method is chosen; the answer is then grpo's.
rl::MethodKind KindOf(const v1::MethodConfig& method);
const rl::MethodFacts& ChosenMethod(const v1::MethodConfig& method);

// The values of the section method.<name> by key: numbers as they are, flags 0 or 1, choices
// counted from 0 (-1: none is made). Empty for a method without a section.
std::map<std::string, double> OwnSettings(const v1::MethodConfig& method);

// The names of all methods that `is` holds for, in the order of the table: "a, b and c" with `last`
// " and ".
std::string MethodsThat(bool (*is)(const rl::MethodFacts&), const char* last);

// The names of the methods that train on final latents.
std::string FinalLatentMethods(const char* last);

}  // namespace oxbow::config
