// SPDX-License-Identifier: Apache-2.0
// How a fuzz target of a service divides its input: messages (bytes_input.h), of which the first
// byte says which call it is for and the rest is a serialized protobuf message.
//
// With libFuzzer, an input is also changed field by field (message_mutator.cc), so that most
// messages parse.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "tests/fuzz/bytes_input.h"

namespace oxbow::fuzz {

struct CallStep {
  uint8_t call = 0;
  std::string_view message;
};

// More steps than this cost time and reach nothing new.
inline constexpr size_t kStepsMax = 64;

// `calls`: how many kinds there are.
inline std::vector<CallStep> Script(const uint8_t* data, size_t size, size_t calls) {
  std::vector<CallStep> script;
  for (const std::string_view part : Messages(Text(data, size))) {
    if (part.empty()) continue;
    const auto call = static_cast<uint8_t>(static_cast<uint8_t>(part[0]) % calls);
    script.push_back({call, part.substr(1)});
    if (script.size() == kStepsMax) break;
  }
  return script;
}

// Parses a message as gRPC would; false where the call would not reach the service.
template <typename Message>
bool Parse(std::string_view bytes, Message& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// Messages that a target defines: an empty one of the type of each kind of call; null: the step has
// no message, its bytes are free.
std::vector<const google::protobuf::Message*> CallMessages();

// Nothing about wrong input belongs on the screen.
inline void BeQuiet() {
  static const bool done = [] {
    google::protobuf::SetLogHandler(nullptr);
    ConfigureLog(LogLevel::kError, LogFormat::kText, "fuzz");
    return true;
  }();
  (void)done;
}

}  // namespace oxbow::fuzz
