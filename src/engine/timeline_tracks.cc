#include "engine/timeline_tracks.h"

#include <algorithm>

namespace nmc::engine {

// Linear in the tracks, of which there are as many as requests at once; runs on the writer's thread.
std::size_t TimelineTracks::track_for(Group& group, const StageSpan& span, bool* is_new) {
  std::vector<Track>& tracks = group.tracks;
  const auto index = [&](auto it) { return static_cast<std::size_t>(it - tracks.begin()); };
  const auto own = std::ranges::find(tracks, span.request_id, &Track::request_id);
  if (own != tracks.end()) return index(own);
  const auto free = std::ranges::find_if(
      tracks, [&](const Track& track) { return track.request_id.empty() && track.busy_until <= span.start; });
  if (free != tracks.end()) return index(free);
  if (tracks.size() >= kTracksMax) return index(std::ranges::min_element(tracks, {}, &Track::busy_until));
  *is_new = true;
  tracks.emplace_back();
  return tracks.size() - 1;
}

TimelineTracks::Place TimelineTracks::place(const StageSpan& span) {
  const auto [it, new_group] = groups_.try_emplace({span.process, span.pid}, Group{groups_.size() + 1, {}});
  Group& group = it->second;
  bool new_track = false;
  const std::size_t index = track_for(group, span, &new_track);
  Track& track = group.tracks[index];
  track.request_id = span.is_last ? "" : span.request_id;
  track.busy_until = std::max(track.busy_until, span.end);
  return {.group = group.number, .track = index + 1, .new_group = new_group, .new_track = new_track};
}

}  // namespace nmc::engine
