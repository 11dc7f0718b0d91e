"""Reads a Perfetto trace with the classes of the package perfetto, and checks it on the way."""

from collections import defaultdict

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


class Timeline:
    """A process of a Perfetto trace as its own classes parse it: each has a sequence of packets."""

    def __init__(self, data, sequence=1):
        trace = protos.Trace()
        trace.ParseFromString(data)
        event_type = protos.TrackEvent.Type
        self.tracks, self.counters, self.slices, self.instants = {}, defaultdict(list), [], []
        names, values, annotations, open_slices = {}, {}, {}, defaultdict(list)
        times = []
        assert trace.packet[0].clock_snapshot.primary_trace_clock == 3
        self.sequences = {packet.trusted_packet_sequence_id for packet in trace.packet}
        for packet in trace.packet:
            if packet.trusted_packet_sequence_id != sequence:
                continue
            names |= {name.iid: name.name for name in packet.interned_data.event_names}
            annotations |= {name.iid: name.name for name in packet.interned_data.debug_annotation_names}
            values |= {value.iid: value.str.decode() for value in packet.interned_data.debug_annotation_string_values}
            if packet.trace_packet_defaults.timestamp_clock_id:
                assert packet.trace_packet_defaults.timestamp_clock_id == 3 and packet.sequence_flags == 1
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                assert track.uuid not in self.tracks
                self.tracks[track.uuid] = track
                assert track.HasField("process") or track.parent_uuid in self.tracks
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            assert packet.sequence_flags == 2 and event.track_uuid in self.tracks
            times.append(packet.timestamp)
            if event.type == event_type.TYPE_COUNTER:
                track = self.tracks[event.track_uuid]
                assert track.counter.unit == track.counter.UNIT_SIZE_BYTES
                self.counters[track.name].append((packet.timestamp, event.counter_value))
                continue
            if event.type == event_type.TYPE_SLICE_END:
                open_slices[event.track_uuid].pop()["end"] = packet.timestamp
                continue
            track = self.tracks[event.track_uuid]
            one = dict(begin=packet.timestamp, track=track.name or track.thread.thread_name)
            one |= dict(name=event.name or names[event.name_iid], flows=list(event.flow_ids))
            for note in event.debug_annotations:
                kind = note.WhichOneof("value")
                value = getattr(note, kind)
                one[annotations[note.name_iid]] = values[value] if kind == "string_value_iid" else value
            if event.type == event_type.TYPE_INSTANT:
                self.instants.append(one)
                continue
            assert event.type == event_type.TYPE_SLICE_BEGIN
            if not track.HasField("thread"):
                assert not open_slices[event.track_uuid], "only slices of threads nest"
            self.slices.append(one)
            open_slices[event.track_uuid].append(one)
        assert times == sorted(times)
        assert not any(open_slices.values()), "a slice has no end"

    def counter_at(self, name, time_ns):
        return [value for at, value in self.counters[name] if at <= time_ns][-1]
