package io.nccl4j.internal.diagnose;

import io.nccl4j.internal.machine.MachineFiles;
import io.nccl4j.internal.machine.ProcessFiles;
import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/**
 * Which processes have files open or map them. A file is known by device and number: its name may
 * be another one in other processes.
 */
final class FileUsers {
  /** A file, whatever it is called. */
  record Identity(long device, long number) {
    static Identity of(Path file) throws IOException {
      Map<String, Object> attributes = Files.readAttributes(file, "unix:dev,ino");
      if (attributes.get("dev") instanceof Long device
          && attributes.get("ino") instanceof Long number) {
        return new Identity(device, number);
      }
      throw new IOException(file + " has no device and number");
    }

    /** As maps(5) write them: hexadecimal major and minor number, decimal number of the file. */
    static Identity of(String device, String number) {
      int colon = device.indexOf(':');
      long major = Long.parseLong(device.substring(0, colon), 16);
      long minor = Long.parseLong(device.substring(colon + 1), 16);
      // As the C library joins them, which is what Java gives.
      long joined =
          (major & 0xfffL) << 8 | minor & 0xffL | (minor & ~0xffL) << 12 | (major & ~0xfffL) << 32;
      return new Identity(joined, Long.parseLong(number));
    }
  }

  private static final int DEVICE = 3;
  private static final int NUMBER = 4;
  private static final int NAME = 5;

  private final ProcessFiles processes;
  private final Map<Identity, TreeSet<Long>> users = new HashMap<>();
  private final List<Long> unreadable = new ArrayList<>();

  /** Looks through all processes once. */
  FileUsers(MachineFiles machine, List<Identity> files) throws IOException {
    this.processes = machine.processes();
    files.forEach(file -> users.put(file, new TreeSet<>()));
    for (long pid : processes.ids()) {
      look(pid);
    }
  }

  private void look(long pid) {
    try {
      maps(pid);
      descriptors(pid);
    } catch (IOException | DirectoryIteratorException e) {
      // A process that has ended uses nothing.
      if (processes.exists(pid)) {
        unreadable.add(pid);
      }
    }
  }

  private void maps(long pid) throws IOException {
    for (String line : processes.maps(pid)) {
      String[] parts = line.split(" +", NAME + 1);
      if (parts.length > NUMBER && !parts[NUMBER].equals("0")) {
        note(pid, Identity.of(parts[DEVICE], parts[NUMBER]));
      }
    }
  }

  private void descriptors(long pid) throws IOException {
    try (DirectoryStream<Path> descriptors = Files.newDirectoryStream(processes.descriptors(pid))) {
      for (Path descriptor : descriptors) {
        try {
          note(pid, Identity.of(descriptor));
        } catch (NoSuchFileException e) {
          // Closed in the meantime, or a socket's or a pipe's number.
          continue;
        }
      }
    }
  }

  private void note(long pid, Identity file) {
    TreeSet<Long> found = users.get(file);
    if (found != null) {
      found.add(pid);
    }
  }

  /** Whether all processes that can be seen let themselves be looked at. */
  boolean isComplete() {
    return unreadable.isEmpty();
  }

  /** How many processes did not. */
  int unreadable() {
    return unreadable.size();
  }

  /** Who uses a file, in words; empty if nobody does. */
  String of(Identity file) {
    List<String> names = new ArrayList<>();
    for (long pid : users.getOrDefault(file, new TreeSet<>())) {
      names.add(processes.command(pid) + " (" + pid + ")");
    }
    return String.join(", ", names);
  }
}
