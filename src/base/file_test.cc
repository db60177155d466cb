// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <vector>

#include "gtest/gtest.h"

namespace oxbow {
namespace {

std::filesystem::path Scratch(std::string_view name) {
  const auto directory = std::filesystem::path(::testing::TempDir()) / "file_test";
  std::filesystem::create_directories(directory);
  return directory / name;
}

TEST(FileTest, ReadsBackWhatWasWritten) {
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(WriteFileAtomically(Scratch("whole"), content).ok());
  EXPECT_EQ(*ReadFile(Scratch("whole")), content);
}

TEST(FileTest, APlainNameIsOneFolderThatIsNotHidden) {
  for (const char* name : {"digits", "a.b", "-", "Lauf 2", "ä"}) EXPECT_TRUE(IsPlainName(name));
  for (const char* name : {"", ".", "..", ".exp", "a/b", "/", "a\nb", "a\x7f"}) {
    EXPECT_FALSE(IsPlainName(name)) << name;
  }
}

TEST(FileTest, APlaceIsLookedAtBeforeTheWorkAndLeftAsItIs) {
  const auto place = Scratch("place");
  std::filesystem::remove_all(place);
  std::filesystem::create_directories(place);
  EXPECT_TRUE(CheckPlace(place / "sheet.png").ok());
  EXPECT_TRUE(CheckPlace(place / "new" / "folder", /*folder=*/true).ok());
  EXPECT_TRUE(CheckPlace("sheet.png").ok()) << "in the working directory";
  EXPECT_TRUE(std::filesystem::is_empty(place));
  ASSERT_TRUE(WriteFileAtomically(place / "file", "x").ok());
  for (const auto& [path, folder] :
       {std::pair(place / "absent" / "sheet.png", false), std::pair(place, false),
        std::pair(place / "file" / "folder", true)}) {
    const absl::Status refused = CheckPlace(path, folder);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_EQ(refused.message().find(".tmp."), refused.message().npos) << refused;
    EXPECT_TRUE(std::string(refused.message()).ends_with(path.string())) << refused;
  }
}

TEST(FileTest, AFailedWriteLeavesTheOldFileAndNoLitter) {
  const auto missing = Scratch("missing_directory") / "file";
  EXPECT_EQ(WriteFileAtomically(missing, "x").code(), absl::StatusCode::kNotFound);
  // /dev/full gives ENOSPC on write: a full disk without filling one.
  auto full = AppendFile::Open("/dev/full");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->Append("x", false).code(), absl::StatusCode::kResourceExhausted);
}

// The limit on the size of files stands in for a disk on which a part fits.
// Promise: A disk that fails for a while ends no run.
TEST(FileTest, AnAppendThatFailsLeavesTheFileAsItWas) {
  const auto path = Scratch("appended");
  std::filesystem::remove(path);
  AppendFile file = AppendFile::Open(path).value();
  ASSERT_TRUE(file.Append("one\n", true).ok());
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  const rlimit full{.rlim_cur = 6, .rlim_max = unlimited.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status failed = file.Append("second\n", true);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  std::signal(SIGXFSZ, before);
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(ReadFile(path).value(), "one\n");
  ASSERT_TRUE(file.Append("second\n", true).ok());
  EXPECT_EQ(ReadFile(path).value(), "one\nsecond\n");
}

TEST(FileTest, RefusesFilesOverTheLimit) {
  ASSERT_TRUE(WriteFileAtomically(Scratch("big"), "12345").ok());
  EXPECT_EQ(ReadFile(Scratch("big"), 4).status().code(), absl::StatusCode::kInvalidArgument);
}

// As processes of two containers do, which have one number each: that of the other.
// Promise: Files are written whole, by any number of writers. A file is written to a temporary file
// with a random name that its writer alone has made, and renamed. Encoders of two containers, which
// have one process id each, may share a cache.
TEST(AtomicFileTest, WritersOfOneFileAtTheSameTimeAreInNobodysWay) {
  const auto path = Scratch("shared");
  std::vector<AtomicFile> writers;
  for (int i = 0; i < 20; ++i) {
    absl::StatusOr<AtomicFile> writer = AtomicFile::Create(path);
    ASSERT_TRUE(writer.ok()) << writer.status();
    writers.push_back(*std::move(writer));
  }
  for (size_t i = 0; i < writers.size(); ++i) {
    ASSERT_TRUE(writers[i].Append(std::string(100 + i, 'x')).ok());
  }
  for (size_t i = 0; i < writers.size(); ++i) {
    ASSERT_TRUE(writers[i].Commit().ok());
    EXPECT_EQ(ReadFile(path).value(), std::string(100 + i, 'x'));
  }
}

// Promise: Files are written whole, by any number of writers.
TEST(AtomicFileTest, OldTemporariesAreSweptAndNothingElse) {
  const auto directory = Scratch("swept");
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const std::vector<std::string> temporaries = {"a.json.tmp.0123456789abcdef", "a.json.tmp.17"};
  const std::vector<std::string> others = {"a.json", "a.tmp.x", "step_000001.tmp", ".tmp.17"};
  const auto old = std::filesystem::file_time_type::clock::now() -
                   absl::ToChronoSeconds(kTemporaryKept + absl::Hours(1));
  for (const std::vector<std::string>& names : {temporaries, others}) {
    for (const std::string& name : names) {
      ASSERT_TRUE(WriteFileAtomically(directory / name, "x").ok());
      std::filesystem::last_write_time(directory / name, old);
    }
  }
  const auto young = directory / "b.tmp.0123456789abcdef";
  ASSERT_TRUE(WriteFileAtomically(young, "x").ok());
  SweepTemporaries(directory);
  for (const std::string& name : temporaries) {
    EXPECT_FALSE(std::filesystem::exists(directory / name)) << name;
  }
  for (const std::string& name : others) {
    EXPECT_TRUE(std::filesystem::exists(directory / name)) << name;
  }
  EXPECT_TRUE(std::filesystem::exists(young)) << "somebody may be writing to it";
}

}  // namespace
}  // namespace oxbow
