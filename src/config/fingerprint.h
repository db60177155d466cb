// SPDX-License-Identifier: Apache-2.0
// The hash by which a checkpoint knows the config of its run.
//
// Two configs have the same fingerprint if runs with them are the same but for how long they are,
// how often they evaluate and save, and where they compute. Which fields those are is an option of
// each field: FingerprintRules in proto/oxbow/v1/config.proto.
//
// The text that is hashed is written here, byte for byte, and not by a library: checkpoints outlive
// the version of protobuf that they were written with.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// SHA-256 in hex of FingerprintText, with the former names of keys. A section that is absent counts
// as an empty one.
std::string FingerprintOf(const v1::RunConfig& config);

// The config as it was before keys got other defaults: checkpoints were made under the former ones.
// No model.lora.targets were those of SD3, whether an adapter trained or not.
v1::RunConfig AsFormerly(v1::RunConfig config);

// The fields of a message that enter by their rules, by number: one a line, "name: value", sections
// in braces and indented by two.
std::string FingerprintText(const google::protobuf::Message& message);

}  // namespace oxbow::config
