/**
 * Beam's job server for a cluster that has all its jars on its own class path: it sends none along with a job.
 *
 * Beam looks for the jars of a job in the class path of the job server. Run it as it is:
 * java -cp 'JARS/*' JobServer.java --job-port=... --flink-master=...
 */
public class JobServer {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("java.class.path", "");
        org.apache.beam.runners.flink.FlinkJobServerDriver.main(arguments);
    }
}
