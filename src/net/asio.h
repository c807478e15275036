// For who uses Boost.Asio: to be included before anything of it, so that all files see it configured alike.
#pragma once

// The thread sanitizer doesn't know fences. Asio's are not needed with it: handlers are handed over under mutexes, too.
#if defined(__SANITIZE_THREAD__)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK 1  // NOLINT(readability-identifier-naming)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK 1  // NOLINT(readability-identifier-naming)
#endif
#endif
#define BOOST_ASIO_NO_DEPRECATED 1  // NOLINT(readability-identifier-naming)
