package io.nccl4j.bench.result;

/**
 * Where a rank runs.
 *
 * @param rank its number
 * @param group its group; 0 if all ranks are in one
 * @param pid process id
 * @param host name of the machine, without its domain
 * @param device ordinal of the device
 * @param deviceId PCI address of the device, without its function; the backend's name where there
 *     is none
 * @param deviceName name of the device for people
 */
public record RankInfo(
    int rank, int group, long pid, String host, int device, String deviceId, String deviceName) {}
