// SPDX-License-Identifier: Apache-2.0
// The main of every test. Each process has a temporary directory of its own: cases of one suite,
// which ctest runs at once, may use the same names in it. TEST_TMPDIR, if set, is kept.
#include <cstdlib>

#include "gmock/gmock.h"
#include "tests/testing/scoped_directory.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (std::getenv("TEST_TMPDIR") != nullptr) return RUN_ALL_TESTS();
  const oxbow::testing::ScopedDirectory directory;
  setenv("TEST_TMPDIR", directory.path().c_str(), /*overwrite=*/1);
  return RUN_ALL_TESTS();
}
