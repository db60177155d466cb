// SPDX-License-Identifier: Apache-2.0
// libFuzzer's mutations of the inputs of services (call_script.h): steps come, go, repeat and
// change places; a message is changed field by field, so that it still parses. One in eight inputs
// is changed byte by byte instead.
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "tests/fuzz/call_script.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

namespace oxbow::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kRepeatedMax = 16;

class MessageMutator {
 public:
  explicit MessageMutator(unsigned seed) : random_(seed) {}

  size_t Below(size_t bound) { return random_() % bound; }

  std::string Bytes(std::string bytes) {
    const size_t size = bytes.size();
    bytes.resize(size + 16);
    bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size, bytes.size()));
    return bytes;
  }

  void Change(Message& message) {
    const auto& type = *message.GetDescriptor();
    if (type.field_count() == 0) return;
    const FieldDescriptor* field = type.field(static_cast<int>(Below(type.field_count())));
    if (field->is_repeated()) return ChangeRepeated(message, field);
    const Reflection& reflection = *message.GetReflection();
    if (Below(8) == 0) return reflection.ClearField(&message, field);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      return Change(*reflection.MutableMessage(&message, field));
    }
    SetScalar(message, field);
  }

 private:
  // Edges of types, small numbers, and neighbours of what is there.
  uint64_t Number(uint64_t now) {
    static constexpr uint64_t kEdges[] = {0,
                                          1,
                                          2,
                                          3,
                                          4,
                                          63,
                                          255,
                                          0x7fffffff,
                                          0x80000000,
                                          0xffffffff,
                                          uint64_t{1} << 32,
                                          uint64_t{1} << 62,
                                          ~uint64_t{0} >> 1,
                                          ~uint64_t{0}};
    switch (Below(4)) {
      case 0:
        return now + Below(9) - 4;
      case 1:
        return random_();
      default:
        return kEdges[Below(std::size(kEdges))];
    }
  }
  double Real(double now) {
    static constexpr double kEdges[] = {0.0, -0.0, 1, -1, 0.5, 1e-300, 1e300, 1e308};
    switch (Below(6)) {
      case 0:
        return std::numeric_limits<double>::quiet_NaN();
      case 1:
        return std::numeric_limits<double>::infinity();
      case 2:
        return -now;
      case 3:
        return now * 2 + 1;
      default:
        return kEdges[Below(std::size(kEdges))];
    }
  }

  void SetScalar(Message& message, const FieldDescriptor* field) {
    const Reflection& to = *message.GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return to.SetInt32(&message, field, static_cast<int32_t>(Number(0)));
      case FieldDescriptor::CPPTYPE_INT64:
        return to.SetInt64(&message, field,
                           static_cast<int64_t>(Number(to.GetInt64(message, field))));
      case FieldDescriptor::CPPTYPE_UINT32:
        return to.SetUInt32(&message, field,
                            static_cast<uint32_t>(Number(to.GetUInt32(message, field))));
      case FieldDescriptor::CPPTYPE_UINT64:
        return to.SetUInt64(&message, field, Number(to.GetUInt64(message, field)));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return to.SetDouble(&message, field, Real(to.GetDouble(message, field)));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return to.SetFloat(&message, field, static_cast<float>(Real(0)));
      case FieldDescriptor::CPPTYPE_BOOL:
        return to.SetBool(&message, field, Below(2) == 0);
      case FieldDescriptor::CPPTYPE_ENUM:
        return to.SetEnumValue(&message, field, static_cast<int>(Below(12)));
      case FieldDescriptor::CPPTYPE_STRING:
        return to.SetString(&message, field, Bytes(to.GetString(message, field)));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return;
    }
  }

  void ChangeRepeated(Message& message, const FieldDescriptor* field) {
    const Reflection& to = *message.GetReflection();
    const int size = to.FieldSize(message, field);
    const int at = size == 0 ? 0 : static_cast<int>(Below(static_cast<size_t>(size)));
    const bool messages = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    switch (Below(5)) {
      case 0:
        if (size > 0) to.RemoveLast(&message, field);
        return;
      case 1:
        if (size > 1) to.SwapElements(&message, field, at, size - 1);
        return;
      case 2:
        if (size < kRepeatedMax) Add(message, field, at);
        return;
      default:
        if (size == 0) return Add(message, field, at);
        if (messages) return Change(*to.MutableRepeatedMessage(&message, field, at));
        return SetElement(message, field, at);
    }
  }

  // Adds a copy of the element `at`, or a first one.
  void Add(Message& message, const FieldDescriptor* field, int at) {
    const Reflection& to = *message.GetReflection();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Message* added = to.AddMessage(&message, field);
      if (to.FieldSize(message, field) > 1) {
        added->CopyFrom(to.GetRepeatedMessage(message, field, at));
      }
      return;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
        return to.AddInt64(&message, field, static_cast<int64_t>(Number(1)));
      case FieldDescriptor::CPPTYPE_UINT32:
        return to.AddUInt32(&message, field, static_cast<uint32_t>(Number(1)));
      case FieldDescriptor::CPPTYPE_UINT64:
        return to.AddUInt64(&message, field, Number(1));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return to.AddDouble(&message, field, Real(1));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return to.AddFloat(&message, field, static_cast<float>(Real(1)));
      case FieldDescriptor::CPPTYPE_BOOL:
        return to.AddBool(&message, field, Below(2) == 0);
      case FieldDescriptor::CPPTYPE_STRING:
        return to.AddString(&message, field, Bytes(""));
      default:
        return;
    }
  }

  void SetElement(Message& message, const FieldDescriptor* field, int at) {
    const Reflection& to = *message.GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
        return to.SetRepeatedInt64(
            &message, field, at,
            static_cast<int64_t>(Number(to.GetRepeatedInt64(message, field, at))));
      case FieldDescriptor::CPPTYPE_UINT32:
        return to.SetRepeatedUInt32(&message, field, at, static_cast<uint32_t>(Number(1)));
      case FieldDescriptor::CPPTYPE_UINT64:
        return to.SetRepeatedUInt64(&message, field, at,
                                    Number(to.GetRepeatedUInt64(message, field, at)));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return to.SetRepeatedDouble(&message, field, at, Real(1));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return to.SetRepeatedFloat(&message, field, at, static_cast<float>(Real(1)));
      case FieldDescriptor::CPPTYPE_BOOL:
        return to.SetRepeatedBool(&message, field, at, Below(2) == 0);
      case FieldDescriptor::CPPTYPE_STRING:
        return to.SetRepeatedString(&message, field, at,
                                    Bytes(to.GetRepeatedString(message, field, at)));
      default:
        return;
    }
  }

  std::mt19937_64 random_;
};

using Step = std::pair<uint8_t, std::string>;

std::vector<Step> StepsOf(const uint8_t* data, size_t size, size_t calls) {
  std::vector<Step> steps;
  for (const CallStep& step : Script(data, size, calls)) {
    steps.emplace_back(step.call, std::string(step.message));
  }
  return steps;
}

// Empty if it does not fit.
std::string Written(const std::vector<Step>& steps, size_t size_max) {
  std::string input;
  for (const auto& [call, message] : steps) {
    const size_t length = message.size() + 1;
    if (length > 0xffff) return "";
    input += static_cast<char>(length & 0xff);
    input += static_cast<char>(length >> 8);
    input += static_cast<char>(call);
    input += message;
  }
  return input.size() > size_max ? "" : input;
}

void ChangeMessage(Step& step, MessageMutator& mutator) {
  const Message* type = CallMessages()[step.first];
  if (type == nullptr) {
    step.second = mutator.Bytes(step.second);
    return;
  }
  const std::unique_ptr<Message> message(type->New());
  (void)Parse(step.second, *message);  // The readable part of it.
  for (size_t changes = 1 + mutator.Below(3); changes > 0; --changes) mutator.Change(*message);
  step.second = message->SerializePartialAsString();
}

void ChangeSteps(std::vector<Step>& steps, MessageMutator& mutator) {
  const size_t calls = CallMessages().size();
  const size_t at = steps.empty() ? 0 : mutator.Below(steps.size());
  const size_t choice = steps.empty() ? 0 : mutator.Below(8);
  if (choice == 0) {
    const Step fresh(static_cast<uint8_t>(mutator.Below(calls)), "");
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), fresh);
  } else if (choice == 1) {
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at));
  } else if (choice == 2) {
    const Step again = steps[mutator.Below(steps.size())];
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), again);
  } else if (choice == 3) {
    std::swap(steps[at], steps[mutator.Below(steps.size())]);
  } else {
    ChangeMessage(steps[at], mutator);
  }
}

}  // namespace
}  // namespace oxbow::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  using namespace oxbow::fuzz;  // NOLINT: a file of one function.
  BeQuiet();
  MessageMutator mutator(seed);
  if (mutator.Below(8) == 0) return LLVMFuzzerMutate(data, size, size_max);
  std::vector<Step> steps = StepsOf(data, size, CallMessages().size());
  ChangeSteps(steps, mutator);
  const std::string input = Written(steps, size_max);
  if (input.empty()) return LLVMFuzzerMutate(data, size, size_max);
  std::copy(input.begin(), input.end(), data);
  return input.size();
}
