// SPDX-License-Identifier: Apache-2.0
#include "io/mapped_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/exit_code.h"

namespace oxbow::io {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() { std::ofstream(path_) << std::string(kBytes, 'x'); }
  ~MappedFileTest() override { std::filesystem::remove(path_); }

  static constexpr size_t kBytes = size_t{1} << 16;
  const std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) / ("mapped_" + std::to_string(::getpid()));
};

// Promise: A file that is cut short under its reader is named. A mapped file of weights that
// another process truncates, or whose disk goes away, ends the process that looks at it with one
// line and exit code 4, or 3.
TEST_F(MappedFileTest, AFileThatIsCutShortEndsTheProcessWithALineThatNamesIt) {
  const auto cut = [&] {
    MappedFile first = MappedFile::Open(path_.string()).value();
    const MappedFile file = std::move(first);
    std::filesystem::resize_file(path_, 10);
    const volatile char last = file.bytes().back();
    (void)last;
  };
  EXPECT_EXIT(cut(), ::testing::ExitedWithCode(kExitData),
              "a file was cut short while this process used it: .*mapped_");
}

TEST_F(MappedFileTest, AnotherFaultIsWhatItWas) {
  const auto fault = [&] {
    {
      const MappedFile closed = MappedFile::Open(path_.string()).value();
      const MappedFile open = MappedFile::Open(path_.string()).value();
    }
    ::raise(SIGBUS);
    ::raise(SIGBUS);  // The first one has put back the handler before.
  };
  EXPECT_EXIT(fault(), ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(MappedFileTest, WhatIsReleasedIsReadAgain) {
  const MappedFile file = MappedFile::Open(path_.string()).value();
  file.Release(file.bytes());
  EXPECT_EQ(file.bytes(), std::string(kBytes, 'x'));
  EXPECT_FALSE(MappedFile::Open(path_.string() + "none").ok());
}

}  // namespace
}  // namespace oxbow::io
