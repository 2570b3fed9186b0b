package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.management.CommunicatorMXBean;
import io.nccl4j.management.ProcessMXBean;
import java.io.IOException;
import java.lang.reflect.Method;
import java.lang.reflect.RecordComponent;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** docs/observe.md shows the settings that are in the jar, and names all that can be seen. */
@Tag("parallel")
final class ObservePageTest {
  private static final Path PAGE = Pages.ROOT.resolve("docs/observe.md");
  private static final Pattern EVENT = Pattern.compile("<event name=\"io\\.nccl4j\\.(\\w+)\">");

  @Test
  void theSettingsAreThoseOfTheJar() throws IOException {
    List<String> shown =
        Pages.blocks(PAGE).stream()
            .filter(block -> block.language().equals("xml"))
            .map(Pages.Block::text)
            .toList();
    Path file = Pages.ROOT.resolve("runtime/src/main/resources/META-INF/nccl4j.jfc");
    assertEquals(List.of(Files.readString(file)), shown);
  }

  @Test
  void eventsAttributesAndCountersAreNamed() throws IOException {
    String page = Files.readString(PAGE);
    Matcher event = EVENT.matcher(page);
    int events = 0;
    while (event.find()) {
      events++;
      assertTrue(page.contains("\n| `" + event.group(1) + "` |"), event.group(1));
    }
    assertTrue(events > 0);
    Stream.of(CommunicatorMXBean.class, ProcessMXBean.class)
        .flatMap(bean -> Stream.of(bean.getMethods()))
        .map(Method::getName)
        .forEach(name -> assertTrue(page.contains("`" + name.substring("get".length()) + "`")));
    Stream.of(OperationCounters.class.getRecordComponents())
        .map(RecordComponent::getName)
        .filter(name -> !name.equals("operation"))
        .forEach(name -> assertTrue(page.contains("`" + name + "`"), name));
  }
}
