// For tests with TLS: an authority made on the spot, and certificates that it signs.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/files.h"

namespace nmc::net {

// Its files lie in a folder of the test's.
class TestAuthority {
 public:
  explicit TestAuthority(Path folder, const std::string& name = "ca") : folder_(std::move(folder)), name_(name) {
    key_.reset(::EVP_EC_gen("P-256"));
    NMC_ASSERT(key_ != nullptr);
    certificate_ = make(name, key_.get(), "CA:TRUE", "", 3600);
    save(file(), [this](std::FILE* to) { return ::PEM_write_X509(to, certificate_.get()); });
  }

  Path file() const { return folder_ / (name_ + ".pem"); }

  struct Files {
    Path certificate, key;
  };
  // `names`: as OpenSSL spells them, "DNS:localhost,IP:127.0.0.1". `seconds`: from now to its end, may be past.
  Files issue(const std::string& name, const std::string& names, long seconds = 3600) const {
    const Key key(::EVP_EC_gen("P-256"));
    const Certificate certificate = make(name, key.get(), "CA:FALSE", names, seconds);
    const Files files{folder_ / (name + ".pem"), folder_ / (name + ".key")};
    save(files.certificate, [&](std::FILE* to) { return ::PEM_write_X509(to, certificate.get()); });
    save(files.key,
         [&](std::FILE* to) { return ::PEM_write_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
    return files;
  }

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { ::X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Free>;
  using Certificate = std::unique_ptr<X509, Free>;

  Certificate make(const std::string& name, EVP_PKEY* key, const char* constraints, const std::string& names,
                   long seconds) const {
    Certificate made(::X509_new());
    X509* const x = made.get();
    ::X509_set_version(x, 2);
    ::ASN1_INTEGER_set(::X509_get_serialNumber(x), static_cast<long>(std::hash<std::string>{}(name) % 1000000) + 1);
    ::X509_gmtime_adj(::X509_getm_notBefore(x), -7200);
    ::X509_gmtime_adj(::X509_getm_notAfter(x), seconds);
    ::X509_set_pubkey(x, key);
    const auto* text = reinterpret_cast<const unsigned char*>(name.c_str());
    ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(x), "CN", MBSTRING_ASC, text, -1, -1, 0);
    X509* const issuer = certificate_ == nullptr ? x : certificate_.get();
    ::X509_set_issuer_name(x, ::X509_get_subject_name(issuer));
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    ::X509V3_set_ctx(&context, issuer, x, nullptr, nullptr, 0);
    const auto extend = [&](int kind, const std::string& value) {
      X509_EXTENSION* const extension = ::X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
      NMC_ASSERT(extension != nullptr, "{}", value);
      ::X509_add_ext(x, extension, -1);
      ::X509_EXTENSION_free(extension);
    };
    extend(NID_basic_constraints, constraints);
    if (!names.empty()) extend(NID_subject_alt_name, names);
    NMC_ASSERT(::X509_sign(x, key_.get(), ::EVP_sha256()) > 0);
    return made;
  }

  template <typename Write>
  static void save(const Path& path, const Write& write) {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    NMC_ASSERT(file != nullptr, "{}", path.string());
    NMC_ASSERT(write(file) == 1);
    std::fclose(file);
  }

  const Path folder_;
  const std::string name_;
  Key key_;
  Certificate certificate_;
};

}  // namespace nmc::net
