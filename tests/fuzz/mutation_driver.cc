// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on a bounded number of mutations of its corpus, drawn from a seed. Works in CI
// with any compiler. The targets have libFuzzer's interface; a build with clang and
// -DOXBOW_FUZZER=ON links libFuzzer instead of this file, which accepts the same flags:
//
//   TARGET CORPUS_DIR... [-runs=20000] [-seed=1]
//   TARGET FILE               runs one input, to look at what a fuzzer found
//
// A run that crashes leaves its input as crash-input in the working directory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

constexpr size_t kInputMax = 4096;

// Words that often break parsers of JSON, of sizes and of text.
const std::vector<std::string> kWords = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         ":",
                                         ",",
                                         "\"",
                                         "\\u0000",
                                         "null",
                                         "true",
                                         "-1",
                                         "0",
                                         "1e999",
                                         "0.5",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "18446744073709551615",
                                         "4611686018427387904",
                                         "4294967296",
                                         "\"dtype\"",
                                         "\"shape\"",
                                         "\"data_offsets\"",
                                         "\"__metadata__\"",
                                         "\"F32\"",
                                         "\"BF16\"",
                                         "\"I64\"",
                                         "\"shift\"",
                                         "\"added_tokens_decoder\"",
                                         "<|endoftext|>",
                                         "</w>",
                                         "</s>",
                                         "'ll",
                                         "\x1e",
                                         "\xe2\x96\x81",
                                         "\xcc\x81",
                                         std::string(1, '\0'),
                                         "\xff",
                                         "\xc3\x28",
                                         "\xe2\x82"};

class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, uint64_t seed)
      : corpus_(std::move(corpus)), random_(seed) {}

  std::string Next() {
    std::string input = corpus_[Below(corpus_.size())];
    for (size_t edits = 1 + Below(6); edits > 0; --edits) Mutate(input);
    if (input.size() > kInputMax) input.resize(kInputMax);
    return input;
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  void Mutate(std::string& input) {
    const size_t at = Below(input.size() + 1);
    const size_t length = std::min(Below(17), input.size() - at);
    switch (Below(7)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << Below(8)));
        return;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(random_());
        return;
      case 2:
        input.erase(at, length);
        return;
      case 3:
        input.insert(at, input.substr(at, length));
        return;
      case 4:
        input.insert(at, kWords[Below(kWords.size())]);
        return;
      case 5:
        input.replace(at, length, kWords[Below(kWords.size())]);
        return;
      default: {
        const std::string& other = corpus_[Below(corpus_.size())];
        input.resize(at);
        input += other.substr(Below(other.size() + 1));
      }
    }
  }

  const std::vector<std::string> corpus_;
  std::mt19937_64 random_;
};

std::string Content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string running;  // The current input, for the signal handler.

// Takes no memory: there may be none left.
void OnAbort(int) {
  const int file = ::open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || ::write(file, running.data(), running.size()) < 0) std::_Exit(135);
  std::_Exit(134);
}

void Run(const std::string& input) {
  running = input;
  // A copy of exactly this size, so that the sanitizer sees a read past the end.
  const std::vector<uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 20'000, seed = 1;
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("-runs=")) {
      runs = std::stoull(argument.substr(6));
    } else if (argument.starts_with("-seed=")) {
      seed = std::stoull(argument.substr(6));
    } else if (fs::is_directory(argument)) {
      for (const auto& entry : fs::directory_iterator(argument)) {
        corpus.push_back(Content(entry.path()));
      }
    } else {
      Run(Content(argument));
      return 0;
    }
  }
  if (corpus.empty()) {
    std::cerr << "no corpus\n";
    return 2;
  }
  std::signal(SIGABRT, OnAbort);
  std::signal(SIGSEGV, OnAbort);
  std::sort(corpus.begin(), corpus.end());  // Directory listings have no order.
  for (const std::string& input : corpus) Run(input);
  Mutator mutator(corpus, seed);
  for (uint64_t i = 0; i < runs; ++i) Run(mutator.Next());
  std::cout << corpus.size() << " inputs and " << runs << " mutations from seed " << seed << "\n";
  return 0;
}
