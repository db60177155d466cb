// A certificate authority for one test, created during the test: no private key is in the
// repository.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace oxbow::testing {

class Authority {
 public:
  explicit Authority(const std::string& common_name);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  struct Issue {
    std::string names = "DNS:oxbow";  // In OpenSSL's form: "DNS:oxbow,IP:127.0.0.1".
    absl::Duration starts = -absl::Hours(1);
    absl::Duration ends = absl::Hours(1);  // Both relative to now.
  };
  // Writes ca.crt, tls.crt and tls.key into the directory, each atomically.
  void Write(const std::filesystem::path& directory, const Issue& issue) const;

 private:
  struct Keys;
  std::unique_ptr<Keys> keys_;
};

}  // namespace oxbow::testing
