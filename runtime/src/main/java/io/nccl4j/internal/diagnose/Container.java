package io.nccl4j.internal.diagnose;

import io.nccl4j.internal.machine.MachineFiles;
import java.util.List;

/** What this process runs in, as far as it decides how limits are set. */
enum Container {
  /** A pod; its containers' limits are in its specification. */
  KUBERNETES("Kubernetes"),
  /** Docker, or containerd driven by its command line. */
  DOCKER("Docker"),
  /** Podman. */
  PODMAN("Podman"),
  /** Apptainer, formerly Singularity: it shows the host's /dev/shm. */
  APPTAINER("Apptainer"),
  /** Another one, for example LXC or systemd-nspawn. */
  OTHER("a container"),
  /** The machine itself. */
  NONE("no container");

  private static final String SHM = "/dev/shm";

  private final String label;

  Container(String label) {
    this.label = label;
  }

  /** What it is, for people. */
  String label() {
    return label;
  }

  static Container of(MachineFiles machine) {
    if (!machine.variable("KUBERNETES_SERVICE_HOST").isEmpty()
        || machine.exists("/var/run/secrets/kubernetes.io")) {
      return KUBERNETES;
    }
    if (!machine.variable("APPTAINER_CONTAINER").isEmpty()
        || !machine.variable("SINGULARITY_CONTAINER").isEmpty()) {
      return APPTAINER;
    }
    if (machine.exists("/run/.containerenv")) {
      return PODMAN;
    }
    if (machine.exists("/.dockerenv")) {
      return DOCKER;
    }
    String groups = String.join("\n", machine.processes().controlGroups());
    for (var sign :
        List.of(
            java.util.Map.entry("kubepods", KUBERNETES),
            java.util.Map.entry("libpod", PODMAN),
            java.util.Map.entry("docker", DOCKER))) {
      if (groups.contains(sign.getKey())) {
        return sign.getValue();
      }
    }
    return machine.variable("container").isEmpty() ? NONE : OTHER;
  }

  /** How /dev/shm gets a size of so many GiB. */
  String enlarge(long gib) {
    return switch (this) {
      case KUBERNETES -> volume(gib);
      case DOCKER -> "start the container with docker run --shm-size=" + gib + "g";
      case PODMAN -> "start the container with podman run --shm-size=" + gib + "g";
      case APPTAINER -> "on the host, as root: " + remount("size=" + gib + "g");
      case OTHER -> "as root: " + remount("size=" + gib + "g") + ", or start the container so";
      case NONE -> "as root: " + remount("size=" + gib + "g");
    };
  }

  /** How /dev/shm comes to be there. */
  String provide(long gib) {
    String mount = "mkdir -p " + SHM + " && mount -t tmpfs -o mode=1777,size=" + gib + "g tmpfs ";
    return switch (this) {
      case KUBERNETES -> volume(gib);
      case DOCKER -> "start the container with docker run --shm-size=" + gib + "g";
      case PODMAN -> "start the container with podman run --shm-size=" + gib + "g";
      case APPTAINER -> "start it with apptainer run --bind " + SHM;
      case OTHER, NONE -> "as root: " + mount + SHM;
    };
  }

  /** How files can be created in /dev/shm where it is read-only. */
  String makeWritable(long gib) {
    String option = "--tmpfs " + SHM + ":rw,mode=1777,size=" + gib + "g";
    return switch (this) {
      case KUBERNETES -> volume(gib);
      case DOCKER -> "start the container with docker run " + option;
      case PODMAN -> "start the container with podman run " + option;
      case APPTAINER -> "on the host, as root: " + remount("rw");
      case OTHER, NONE -> "as root: " + remount("rw");
    };
  }

  /** How the limit of memory becomes so many GiB larger. */
  String raiseMemory(long gib, String group) {
    return switch (this) {
      case KUBERNETES -> "raise resources.limits.memory of the container by " + gib + "Gi";
      case DOCKER ->
          "start the container with a docker run --memory that is larger by " + gib + "g";
      case PODMAN ->
          "start the container with a podman run --memory that is larger by " + gib + "g";
      case APPTAINER, OTHER, NONE ->
          "raise the limit of the control group "
              + group
              + " by "
              + gib
              + " GiB (systemd: MemoryMax)";
    };
  }

  /** How a setting of the kernel gets a value: {@code name=value}. */
  String set(String setting) {
    return switch (this) {
      case KUBERNETES -> "set it in securityContext.sysctls of the pod: " + setting;
      case DOCKER -> "start the container with docker run --sysctl " + setting;
      case PODMAN -> "start the container with podman run --sysctl " + setting;
      case APPTAINER -> "on the host, as root: sysctl -w " + setting;
      case OTHER, NONE -> "as root: sysctl -w " + setting;
    };
  }

  private static String remount(String options) {
    return "mount -o remount," + options + " " + SHM;
  }

  private static String volume(long gib) {
    return "mount a volume emptyDir: {medium: Memory, sizeLimit: " + gib + "Gi} at " + SHM;
  }
}
