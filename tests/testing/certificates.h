// A certificate authority for one test, made on the spot: nobody's private key lies in the
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
    std::string names = "DNS:oxbow";  // As OpenSSL writes them: "DNS:oxbow,IP:127.0.0.1".
    absl::Duration starts = -absl::Hours(1);
    absl::Duration ends = absl::Hours(1);  // Both from now.
  };
  // Writes ca.crt, tls.crt and tls.key into the directory, each in one go.
  void Write(const std::filesystem::path& directory, const Issue& issue) const;

 private:
  struct Keys;
  std::unique_ptr<Keys> keys_;
};

}  // namespace oxbow::testing
