// SPDX-License-Identifier: Apache-2.0
// The hash by which a checkpoint knows the config of its run, and the settings that keep a run from
// going on.
//
// Two configs have the same fingerprint if runs with them are the same but for how long they are,
// how often they evaluate and save, and where they compute and lie. Which fields those are is an
// option of each field: FingerprintRules in proto/oxbow/v1/config.proto. Model and prompts are
// paths, and a path changes no result: a checkpoint knows the content by hashes of its own.
//
// The text that is hashed is written here, byte for byte, and not by a library: checkpoints outlive
// the version of protobuf that they were written with.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// The age of the checkpoints that a fingerprint is for. Former ones knew name and directory of the
// run, its observed rewards and the paths of model and prompts by the config's fingerprint.
enum class FingerprintAge { kPresent, kFormer };

// SHA-256 in hex of FingerprintText, with the former names of keys. A section that is absent counts
// as an empty one.
std::string FingerprintOf(const v1::RunConfig& config,
                          FingerprintAge age = FingerprintAge::kPresent);

// The config as it was before keys got other defaults: checkpoints were made under the former ones.
// No model.lora.targets were those of SD3, whether an adapter trained or not.
v1::RunConfig AsFormerly(v1::RunConfig config);

// The fields of a message that enter by their rules, by number: one a line, "name: value", sections
// in braces and indented by two.
std::string FingerprintText(const google::protobuf::Message& message,
                            FingerprintAge age = FingerprintAge::kPresent);

// Whether a field may differ over a resume: it does not enter.
bool IsLeftOut(const google::protobuf::FieldDescriptor& field);

// Whether a field may differ as long as what its path leads to is the same.
bool IsComparedByContent(const google::protobuf::FieldDescriptor& field);

// Gives `to` the values of `from` that only former fingerprints have.
void CopyFormerFields(const v1::RunConfig& from, v1::RunConfig& to);

// The settings that keep a run from going on: what makes the fingerprints of two configs differ
// (config/fingerprint.h), by name.
//
// A setting that must not change over a resume, and did.
struct ChangedKey {
  std::string key;     // "optimizer.learning_rate"
  std::string before;  // Values as a resolved config has them.
  std::string now;
};

// In the schema's order; of resolved configs. Empty: a run of one goes on with the other.
std::vector<ChangedKey> ChangedKeys(const v1::RunConfig& before, const v1::RunConfig& now);

// Settings that may differ, but not without a word: evaluations before and after measure other
// things.
std::vector<ChangedKey> ChangedMeasures(const v1::RunConfig& before, const v1::RunConfig& now);

// Keys that may differ, and sections as "eval.*"; no key of which the content must be the same.
std::vector<std::string> FreeKeys();

}  // namespace oxbow::config
